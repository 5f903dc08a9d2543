import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Collections;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;

/** Prints the records of topics with the SimpleConsumer of Kafka 0.8 and 0.9: BOOTSTRAP TOPIC,... . The lines of Consume, no times. */
public final class ConsumeSimple {
    private static final int FETCH_BYTES = 4 << 20;
    private static final long EARLIEST = -2;

    private ConsumeSimple() { }

    public static void main(String[] args) throws Exception {
        String[] address = args[0].split(":");
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        SimpleConsumer consumer = new SimpleConsumer(address[0], Integer.parseInt(address[1]), 30_000, 1 << 16, "test");
        String between = "";
        for (String topic : args[1].split(",")) {
            out.print(between);
            between = "\f\n";
            print(consumer, topic, out);
        }
        consumer.close();
        out.flush();
    }

    private static void print(SimpleConsumer consumer, String topic, PrintStream out) {
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        long next = consumer.getOffsetsBefore(new OffsetRequest(
            Collections.singletonMap(partition, new PartitionOffsetRequestInfo(EARLIEST, 1)), (short) 0, "test"))
            .offsets(topic, 0)[0];
        long end = Long.MAX_VALUE;
        while (next < end) {
            FetchResponse response = consumer.fetch(new FetchRequestBuilder().clientId("test").addFetch(topic, 0, next,
                FETCH_BYTES).build());
            if (response.hasError()) {
                throw new IllegalStateException("error " + response.errorCode(topic, 0));
            }
            end = response.highWatermark(topic, 0);
            for (MessageAndOffset entry : response.messageSet(topic, 0)) {
                if (entry.offset() >= next) {
                    out.print(entry.offset() + "\t-1\tNoTimestampType\t" + base64(entry.message().key()) + "\t"
                        + base64(entry.message().payload()) + "\n");
                    next = entry.offset() + 1;
                }
            }
        }
    }

    private static String base64(ByteBuffer bytes) {
        if (bytes == null) {
            return "~";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return Base64.getEncoder().encodeToString(copy);
    }
}

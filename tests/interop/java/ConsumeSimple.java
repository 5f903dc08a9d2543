import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Base64;
import kafka.api.FetchRequestBuilder;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;

/** Prints the records of a partition with the SimpleConsumer of Kafka 0.8: BOOTSTRAP TOPIC. The lines of Consume, no times. */
public final class ConsumeSimple {
    private static final int FETCH_BYTES = 4 << 20;

    private ConsumeSimple() { }

    public static void main(String[] args) throws Exception {
        String[] address = args[0].split(":");
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        SimpleConsumer consumer = new SimpleConsumer(address[0], Integer.parseInt(address[1]), 30_000, 1 << 16, "test");
        long next = 0;
        long end = Long.MAX_VALUE;
        while (next < end) {
            FetchResponse response = consumer.fetch(new FetchRequestBuilder().clientId("test").addFetch(args[1], 0, next,
                FETCH_BYTES).build());
            if (response.hasError()) {
                throw new IllegalStateException("error " + response.errorCode(args[1], 0));
            }
            end = response.highWatermark(args[1], 0);
            for (MessageAndOffset entry : response.messageSet(args[1], 0)) {
                if (entry.offset() >= next) {
                    out.print(entry.offset() + "\t-1\tNoTimestampType\t" + base64(entry.message().key()) + "\t"
                        + base64(entry.message().payload()) + "\n");
                    next = entry.offset() + 1;
                }
            }
        }
        consumer.close();
        out.flush();
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

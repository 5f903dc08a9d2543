import java.io.PrintStream;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/**
 * Copies the records of one topic to another with Kafka Streams until its input ends: BOOTSTRAP SOURCE TARGET FOLDER.
 * Lines: "state STATE" of each state that it comes into. FOLDER is for its state.
 */
public final class StreamsPass {
    private StreamsPass() { }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("application.id", "pass");
        properties.put("state.dir", args[3]);
        properties.put("default.key.serde", Serdes.ByteArraySerde.class.getName());
        properties.put("default.value.serde", Serdes.ByteArraySerde.class.getName());
        properties.put("commit.interval.ms", "500");
        properties.put("replication.factor", "3");
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "1000");
        properties.put("reconnect.backoff.max.ms", "500");
        properties.put("metadata.max.age.ms", "2000");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[1]).to(args[2]);
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        CountDownLatch stop = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> out.println("state " + now));
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException gone) {
                System.err.println(gone);
            }
            stop.countDown();
        });
        input.setDaemon(true);
        input.start();
        streams.start();
        stop.await();
        streams.close(Duration.ofSeconds(20));
    }
}

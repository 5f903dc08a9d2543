import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Sends numbered records with the idempotent producer until its input ends: BOOTSTRAP TOPIC PARTITIONS NAME SEED
 * PER_SECOND PATIENCE_S. Lines: "sent PARTITION VALUE" before each record is given to the producer, "acked PARTITION VALUE
 * OFFSET" and "failed PARTITION VALUE MESSAGE" of each; at the end waits PATIENCE_S for answers. A value in the topic is
 * followed by a colon and filling.
 */
public final class ProduceUntil {
    private ProduceUntil() { }

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        String name = args[3];
        int partitions = Integer.parseInt(args[2]);
        int perSecond = Integer.parseInt(args[5]);
        Random pick = new Random(Long.parseLong(args[4]));
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("acks", "all");
        properties.put("enable.idempotence", "true");
        properties.put("linger.ms", "5");
        properties.put("delivery.timeout.ms", "240000");
        properties.put("request.timeout.ms", "10000");
        properties.put("max.block.ms", "240000");
        properties.put("reconnect.backoff.max.ms", "1000");
        properties.put("metadata.max.age.ms", "5000");
        CountDownLatch stop = new CountDownLatch(1);
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
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
        int sent = 0;
        while (!stop.await(100, TimeUnit.MILLISECONDS)) {
            for (int left = 1 + pick.nextInt(perSecond / 5); left > 0; left--) {
                int partition = pick.nextInt(partitions);
                String what = partition + " " + name + "-" + sent++;
                char[] filling = new char[pick.nextInt(300)];
                Arrays.fill(filling, 'x');
                String value = what.substring(what.indexOf(' ') + 1) + ":" + new String(filling);
                out.println("sent " + what);
                producer.send(
                    new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.UTF_8)),
                    (metadata, error) -> out.println(
                        error == null ? "acked " + what + " " + metadata.offset() : "failed " + what + " " + error));
            }
        }
        producer.close(Duration.ofSeconds(Long.parseLong(args[6])));
    }
}

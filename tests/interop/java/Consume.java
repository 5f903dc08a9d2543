import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * Prints the records of partition 0 of topics with the Java consumer of any Kafka version from 0.10.1 on:
 * BOOTSTRAP TOPIC,... ISOLATION. A line: offset, timestamp, its type, key, value, names and values of headers, separated by
 * tabs; bytes in base64, null as "~". Between topics a form feed.
 */
public final class Consume {
    private Consume() { }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("enable.auto.commit", "false");
        properties.put("default.api.timeout.ms", "200000");
        properties.put("isolation.level", args[2]);
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            String between = "";
            for (String topic : args[1].split(",")) {
                out.print(between);
                between = "\f\n";
                TopicPartition partition = new TopicPartition(topic, 0);
                consumer.assign(Collections.singletonList(partition));
                consumer.seekToBeginning(Collections.singletonList(partition));
                long end = consumer.endOffsets(Collections.singletonList(partition)).get(partition);
                while (consumer.position(partition) < end) {
                    for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                        print(record, out);
                    }
                }
            }
        }
        out.flush();
    }

    @SuppressWarnings("unchecked")
    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        try {
            Class<?> duration = Class.forName("java.time.Duration");
            Object second = duration.getMethod("ofSeconds", long.class).invoke(null, 1L);
            return (ConsumerRecords<byte[], byte[]>) KafkaConsumer.class.getMethod("poll", duration).invoke(consumer, second);
        } catch (NoSuchMethodException before20) {
            return (ConsumerRecords<byte[], byte[]>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 1000L);
        }
    }

    private static void print(ConsumerRecord<byte[], byte[]> record, PrintStream out) throws Exception {
        StringBuilder line = new StringBuilder();
        line.append(record.offset()).append('\t').append(record.timestamp()).append('\t').append(record.timestampType());
        line.append('\t').append(base64(record.key())).append('\t').append(base64(record.value()));
        for (Method method : ConsumerRecord.class.getMethods()) {
            if (method.getName().equals("headers")) {
                Class<?> header = Class.forName("org.apache.kafka.common.header.Header");
                for (Object one : (Iterable<?>) method.invoke(record)) {
                    String name = (String) header.getMethod("key").invoke(one);
                    line.append('\t').append(base64(name.getBytes(StandardCharsets.UTF_8)));
                    line.append('\t').append(base64((byte[]) header.getMethod("value").invoke(one)));
                }
            }
        }
        out.print(line.append('\n'));
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? "~" : Base64.getEncoder().encodeToString(bytes);
    }
}

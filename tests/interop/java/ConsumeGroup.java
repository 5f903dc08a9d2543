import java.lang.reflect.Method;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads records of partition 0 of a topic as the only member of a group, with the Java consumer of any Kafka version from
 * 0.9 on, commits behind the last one and leaves: BOOTSTRAP TOPIC GROUP COUNT. Prints their offsets, a line each.
 */
public final class ConsumeGroup {
    private ConsumeGroup() { }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("group.id", args[2]);
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("enable.auto.commit", "false");
        properties.put("session.timeout.ms", "30000");
        properties.put("request.timeout.ms", "100000");
        properties.put("default.api.timeout.ms", "200000");
        properties.put("auto.offset.reset", "earliest");
        int wanted = Integer.parseInt(args[3]);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(Collections.singletonList(args[1]));
            while (wanted > 0) {
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                    if (wanted-- > 0) {
                        System.out.println(record.offset());
                        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                        OffsetAndMetadata next = new OffsetAndMetadata(record.offset() + 1);
                        consumer.commitSync(Collections.singletonMap(partition, next));
                    }
                }
            }
        }
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
}

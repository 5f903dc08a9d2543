import java.lang.reflect.Method;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Carries records of partition 0 of a topic over to another topic, a transaction for each poll, with the Java clients of
 * any Kafka version from 0.11 on: BOOTSTRAP FROM TO GROUP ID COUNT. Every other transaction is aborted, and done again.
 */
public final class Transfer {
    private Transfer() { }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("group.id", args[3]);
        properties.put("transactional.id", args[4]);
        properties.put("max.block.ms", "200000");
        properties.put("delivery.timeout.ms", "200000");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("enable.auto.commit", "false");
        properties.put("session.timeout.ms", "30000");
        properties.put("request.timeout.ms", "100000");
        properties.put("default.api.timeout.ms", "200000");
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", "read_committed");
        properties.put("max.poll.records", "10");
        int left = Integer.parseInt(args[5]);
        boolean aborts = false;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties);
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            consumer.subscribe(Collections.singletonList(args[1]));
            while (left > 0) {
                ConsumerRecords<byte[], byte[]> records = poll(consumer);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                long first = -1;
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    first = first < 0 ? record.offset() : first;
                    producer.send(new ProducerRecord<>(args[2], 0, record.key(), record.value()));
                    offsets.put(new TopicPartition(record.topic(), 0), new OffsetAndMetadata(record.offset() + 1));
                }
                sendOffsets(producer, consumer, offsets, args[3]);
                producer.flush();
                aborts = !aborts;
                if (aborts) {
                    producer.abortTransaction();
                    consumer.seek(new TopicPartition(args[1], 0), first);
                } else {
                    producer.commitTransaction();
                    left -= records.count();
                }
            }
        }
    }

    private static void sendOffsets(KafkaProducer<byte[], byte[]> producer, KafkaConsumer<byte[], byte[]> consumer,
            Map<TopicPartition, OffsetAndMetadata> offsets, String group) throws Exception {
        try {
            Object metadata = KafkaConsumer.class.getMethod("groupMetadata").invoke(consumer);
            Class<?> type = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, type).invoke(producer, offsets, metadata);
        } catch (NoSuchMethodException before25) {
            Method before = KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class);
            before.invoke(producer, offsets, group);
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

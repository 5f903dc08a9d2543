import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** 0.10: with times; neither headers nor an admin client. */
final class Era {
    private Era() { }

    static ProducerRecord<byte[], byte[]> record(String topic, Contract.Entry entry) {
        return new ProducerRecord<>(topic, 0, entry.timestamp, entry.key, entry.value);
    }

    static void fill(Contract.Entry entry, ConsumerRecord<byte[], byte[]> record) {
        entry.timestamp = record.timestamp();
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long milliseconds) {
        return consumer.poll(milliseconds);
    }

    static OffsetAndMetadata committed(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        return consumer.committed(partition);
    }

    static Map<String, String> admin(String bootstrap, String topic, String name, String value) {
        throw new UnsupportedOperationException("no admin client before 0.11");
    }
}

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/**
 * Converts the log bytes of standard input as a broker does: "down MAGIC" as for the fetch of an old consumer, "up MAGIC" as
 * for what an old producer sent. Codecs stay. Up assigns consecutive offsets from the first one on and needs CreateTime.
 */
public final class Convert {
    private static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        @Override public void recordInvalidMagic() { }
        @Override public void recordInvalidOffset() { }
        @Override public void recordInvalidSequence() { }
        @Override public void recordInvalidChecksums() { }
        @Override public void recordNoKeyCompactedTopic() { }
    };

    private Convert() { }

    public static void main(String[] args) throws IOException {
        byte magic = Byte.parseByte(args[1]);
        MemoryRecords source = MemoryRecords.readableRecords(ByteBuffer.wrap(System.in.readAllBytes()));
        try (OutputStream out = new BufferedOutputStream(System.out)) {
            if (args[0].equals("down")) {
                write((MemoryRecords) source.downConvert(magic, 0, Time.SYSTEM).records(), out);
            } else {
                up(source, magic, out);
            }
        }
    }

    private static void up(MemoryRecords source, byte magic, OutputStream out) throws IOException {
        TopicPartition partition = new TopicPartition("test", 0);
        PrimitiveRef.LongRef offset = null;
        int start = 0;
        for (MutableRecordBatch batch : source.batches()) {
            CompressionType codec = batch.compressionType();
            if (offset == null) {
                offset = PrimitiveRef.ofLong(batch.iterator().next().offset());
            }
            ByteBuffer bytes = source.buffer().slice(start, batch.sizeInBytes());
            write(new LogValidator(MemoryRecords.readableRecords(bytes), partition, Time.SYSTEM, codec, Compression.of(codec).build(),
                false, magic, TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE, 0, AppendOrigin.CLIENT,
                MetadataVersion.latestProduction())
                .validateMessagesAndAssignOffsets(offset, NO_METRICS, BufferSupplier.NO_CACHING).validatedRecords, out);
            start += batch.sizeInBytes();
        }
    }

    private static void write(MemoryRecords records, OutputStream out) throws IOException {
        ByteBuffer bytes = records.buffer();
        out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
    }
}

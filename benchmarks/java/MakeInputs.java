import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionRatioEstimator;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * Writes the bytes that every rival of a benchmark reads: RECORDS OUTPUT MAGIC CODEC.
 *
 * RECORDS holds one record after the other: timestamp (int64), key length (int32), key, value length, value. The batches
 * are closed where the Java producer closes them: at batch.size=16384 with its running estimate of the compression ratio.
 * Offsets are consecutive from 0, as a broker would have assigned them.
 */
public final class MakeInputs {
    private static final int BATCH_SIZE = 16384;

    private MakeInputs() { }

    public static void main(String[] args) throws IOException {
        byte magic = Byte.parseByte(args[2]);
        CompressionType codec = CompressionType.forName(args[3]);
        Compression compression = Compression.of(codec).build();
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(Path.of(args[0])), 1 << 20));
             OutputStream out = new BufferedOutputStream(Files.newOutputStream(Path.of(args[1])), 1 << 20)) {
            MemoryRecordsBuilder builder = null;
            long offset = 0;
            while (true) {
                long timestamp;
                try {
                    timestamp = in.readLong();
                } catch (EOFException end) {
                    break;
                }
                byte[] key = in.readNBytes(in.readInt());
                byte[] value = in.readNBytes(in.readInt());
                if (builder != null && !builder.hasRoomFor(timestamp, key, value, Record.EMPTY_HEADERS)) {
                    finish(builder, codec, out);
                    builder = null;
                }
                if (builder == null) {
                    builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(ByteBuffer.allocate(2 * BATCH_SIZE)), magic,
                        compression, TimestampType.CREATE_TIME, offset, RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID,
                        RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, false, 0, BATCH_SIZE);
                    builder.setEstimatedCompressionRatio(CompressionRatioEstimator.estimation("benchmark", codec));
                }
                builder.appendWithOffset(offset++, timestamp, key, value);
            }
            if (builder != null) {
                finish(builder, codec, out);
            }
        }
    }

    private static void finish(MemoryRecordsBuilder builder, CompressionType codec, OutputStream out) throws IOException {
        MemoryRecords records = builder.build();
        CompressionRatioEstimator.updateEstimation("benchmark", codec, (float) builder.compressionRatio());
        ByteBuffer bytes = records.buffer();
        out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
    }
}

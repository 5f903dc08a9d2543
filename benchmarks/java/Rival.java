import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/**
 * Kafka's own Java classes as a rival: warms up, says "ready", then does its work once per line of standard input and prints
 * the seconds. Tasks: decode INPUT | consume INPUT | encode RECORDS | up INPUT | down INPUT (the last two convert lz4 to lz4).
 */
public final class Rival {
    private static final int BATCH_SIZE = 16384;
    private static final int MAX_POLL_RECORDS = 500;
    private static final int DOWN_CONVERSION_READ = 128 * 1024;  // what a broker reads at a time to convert for a fetch
    private static final long WARM_UP_NANOS = 10_000_000_000L;
    private static final long RUN_NANOS = 1_000_000_000L;
    private static final BufferSupplier BUFFERS = BufferSupplier.create();
    private static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        @Override public void recordInvalidMagic() { }
        @Override public void recordInvalidOffset() { }
        @Override public void recordInvalidSequence() { }
        @Override public void recordInvalidChecksums() { }
        @Override public void recordNoKeyCompactedTopic() { }
    };

    // Written to so that the compiler can leave no copy out.
    static byte[] lastKey;
    static byte[] lastValue;
    static MemoryRecords lastRecords;
    static List<ConsumerRecord<byte[], byte[]>> lastPolled;

    private interface Work {
        /** Goes through all of the input once and returns how many records that were. */
        long once();
    }

    private Rival() { }

    public static void main(String[] args) throws IOException {
        Work work = prepare(args[0], Path.of(args[1]));
        long spent = 0;
        long shortest = Long.MAX_VALUE;
        for (int pass = 0; spent < WARM_UP_NANOS || pass < 3; pass++) {
            long begin = System.nanoTime();
            work.once();
            long took = System.nanoTime() - begin;
            spent += took;
            shortest = Math.min(shortest, took);
        }
        long passes = Math.max(1, (RUN_NANOS + shortest - 1) / shortest);
        System.out.printf("{\"ready\": \"kafka-clients %s, java %s\", \"passes\": %d}%n", AppInfoParser.getVersion(),
            System.getProperty("java.vm.version"), passes);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (orders.readLine() != null) {
            long records = 0;
            long begin = System.nanoTime();
            for (long pass = 0; pass < passes; pass++) {
                records += work.once();
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            System.out.printf("{\"seconds\": %.9f, \"records\": %d}%n", seconds, records);
        }
    }

    private static Work prepare(String task, Path input) throws IOException {
        switch (task) {
            case "decode": {
                byte[] data = Files.readAllBytes(input);
                return () -> decode(data);
            }
            case "consume": {
                byte[] data = Files.readAllBytes(input);
                return () -> consume(data);
            }
            case "encode": {
                Columns columns = Columns.read(input);
                ByteBuffer buffer = ByteBuffer.allocate(BATCH_SIZE);
                return () -> encode(columns, buffer);
            }
            case "up": {
                List<MemoryRecords> sets = cut(Files.readAllBytes(input), 0);
                return () -> convertUp(sets);
            }
            case "down": {
                List<MemoryRecords> sets = cut(Files.readAllBytes(input), DOWN_CONVERSION_READ);
                return () -> convertDown(sets);
            }
            default:
                throw new IllegalArgumentException(task);
        }
    }

    /** What the consumer does with a fetched set: checksums, records, keys and values as arrays of their own. */
    private static long decode(byte[] data) {
        long records = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            batch.ensureValid();
            // The consumer checks a plain v0 or v1 message twice; here once, which favours the rival.
            boolean inner = batch.magic() < RecordBatch.MAGIC_VALUE_V2 && batch.isCompressed();
            try (CloseableIterator<Record> iterator = batch.streamingIterator(BUFFERS)) {
                while (iterator.hasNext()) {
                    Record record = iterator.next();
                    if (inner) {
                        record.ensureValid();
                    }
                    lastKey = Utils.toNullableArray(record.key());
                    lastValue = Utils.toNullableArray(record.value());
                    records++;
                }
            }
        }
        return records;
    }

    /** The same up to what poll() returns: lists of 500 ConsumerRecord objects, by the default deserializer for arrays. */
    private static long consume(byte[] data) {
        ByteArrayDeserializer deserializer = new ByteArrayDeserializer();
        List<ConsumerRecord<byte[], byte[]>> polled = new ArrayList<>();
        long records = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            batch.ensureValid();
            boolean inner = batch.magic() < RecordBatch.MAGIC_VALUE_V2 && batch.isCompressed();
            Optional<Integer> epoch = Optional.of(batch.partitionLeaderEpoch());
            try (CloseableIterator<Record> iterator = batch.streamingIterator(BUFFERS)) {
                while (iterator.hasNext()) {
                    Record record = iterator.next();
                    if (inner) {
                        record.ensureValid();
                    }
                    Headers headers = new RecordHeaders(record.headers());
                    ByteBuffer key = record.key();
                    ByteBuffer value = record.value();
                    polled.add(new ConsumerRecord<>("benchmark", 0, record.offset(), record.timestamp(), batch.timestampType(),
                        key == null ? -1 : key.remaining(), value == null ? -1 : value.remaining(),
                        key == null ? null : deserializer.deserialize("benchmark", headers, key),
                        value == null ? null : deserializer.deserialize("benchmark", headers, value), headers, epoch));
                    records++;
                    if (polled.size() == MAX_POLL_RECORDS) {
                        lastPolled = polled;
                        polled = new ArrayList<>();
                    }
                }
            }
        }
        return records;
    }

    /** What the producer does: append until the batch is full, close it; the buffer is used again, as from its pool. */
    private static long encode(Columns columns, ByteBuffer buffer) {
        MemoryRecordsBuilder builder = null;
        for (int i = 0; i < columns.timestamps.length; i++) {
            if (builder != null && !builder.hasRoomFor(columns.timestamps[i], columns.keys[i], columns.values[i], Record.EMPTY_HEADERS)) {
                lastRecords = builder.build();
                builder = null;
            }
            if (builder == null) {
                buffer.clear();
                builder = MemoryRecords.builder(buffer, RecordBatch.MAGIC_VALUE_V2, Compression.NONE,
                    TimestampType.CREATE_TIME, 0L);
            }
            builder.append(columns.timestamps[i], columns.keys[i], columns.values[i]);
        }
        if (builder != null) {
            lastRecords = builder.build();
        }
        return columns.timestamps.length;
    }

    /** What a broker does with a produced v1 set when the topic's format is v2. */
    private static long convertUp(List<MemoryRecords> sets) {
        TopicPartition partition = new TopicPartition("benchmark", 0);
        Compression lz4 = Compression.lz4().build();
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(0);
        for (MemoryRecords set : sets) {
            lastRecords = new LogValidator(set, partition, Time.SYSTEM, CompressionType.LZ4, lz4, false,
                RecordBatch.MAGIC_VALUE_V2, TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE, 0, AppendOrigin.CLIENT,
                MetadataVersion.latestProduction())
                .validateMessagesAndAssignOffsets(offset, NO_METRICS, BUFFERS).validatedRecords;
        }
        return offset.value;
    }

    /** What a broker does with stored v2 batches when the reader knows v0 only. */
    private static long convertDown(List<MemoryRecords> sets) {
        long records = 0;
        for (MemoryRecords set : sets) {
            var converted = set.downConvert(RecordBatch.MAGIC_VALUE_V0, 0, Time.SYSTEM);
            lastRecords = (MemoryRecords) converted.records();
            records += converted.recordConversionStats().numRecordsConverted();
        }
        return records;
    }

    /** Cuts the input into sets of whole batches: one batch each, or as many as fit into `bytes`. */
    private static List<MemoryRecords> cut(byte[] data, int bytes) {
        List<MemoryRecords> sets = new ArrayList<>();
        int start = 0;
        int end = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            if (end > start && end - start + batch.sizeInBytes() > bytes) {
                sets.add(MemoryRecords.readableRecords(ByteBuffer.wrap(data, start, end - start).slice()));
                start = end;
            }
            end += batch.sizeInBytes();
        }
        sets.add(MemoryRecords.readableRecords(ByteBuffer.wrap(data, start, end - start).slice()));
        return sets;
    }

    private static final class Columns {
        final long[] timestamps;
        final byte[][] keys;
        final byte[][] values;

        private Columns(int count) {
            timestamps = new long[count];
            keys = new byte[count][];
            values = new byte[count][];
        }

        static Columns read(Path path) throws IOException {
            List<byte[]> keys = new ArrayList<>();
            List<byte[]> values = new ArrayList<>();
            List<Long> timestamps = new ArrayList<>();
            long left = Files.size(path);
            try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(path), 1 << 20))) {
                while (left > 0) {
                    timestamps.add(in.readLong());
                    byte[] key = in.readNBytes(in.readInt());
                    byte[] value = in.readNBytes(in.readInt());
                    keys.add(key);
                    values.add(value);
                    left -= 16 + key.length + value.length;
                }
            }
            Columns columns = new Columns(keys.size());
            for (int i = 0; i < keys.size(); i++) {
                columns.timestamps[i] = timestamps.get(i);
                columns.keys[i] = keys.get(i);
                columns.values[i] = values.get(i);
            }
            return columns;
        }
    }
}

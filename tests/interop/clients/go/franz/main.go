// Command franz is franz-go: BOOTSTRAP.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"clients/contract"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type franz struct{ bootstrap string }

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func (f franz) client(options ...kgo.Opt) (*kgo.Client, error) {
	if strings.HasPrefix(contract.Release, "0.8.") || strings.HasPrefix(contract.Release, "0.9.") {
		// Brokers before 0.10 cannot say what they know.
		options = append(options, kgo.MaxVersions(kversion.FromString("v"+contract.Release)))
	}
	secured, err := security()
	if err != nil {
		return nil, err
	}
	options = append(options, secured...)
	options = append(options, kgo.SeedBrokers(f.bootstrap), kgo.RetryTimeout(contract.Patience))
	client, err := kgo.NewClient(append(options, kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil || len(secured) == 0 {
		return client, err
	}
	// Says why it is refused; to produce would be tried until time is up.
	ctx, cancel := patiently()
	defer cancel()
	return client, client.Ping(ctx)
}

// security makes options of the settings: TLS, and who logs in.
func security() ([]kgo.Opt, error) {
	told := contract.Settings
	var options []kgo.Opt
	if retries, err := strconv.Atoi(told["retries"]); err == nil {
		options = append(options, kgo.RequestRetries(retries))
	}
	if config, err := contract.TLS(); err != nil {
		return nil, err
	} else if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	user, password := told["sasl.username"], told["sasl.password"]
	switch told["sasl.mechanism"] {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	return options, nil
}

func patiently() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), contract.Patience)
}

func (f franz) Produce(topic, codec string, idempotent bool, entries []contract.Entry) ([]int64, error) {
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if !idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := f.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, each := range entries {
		record := &kgo.Record{Topic: topic, Key: each.Key, Value: each.Value, Timestamp: time.UnixMilli(each.Timestamp)}
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, record)
	}
	ctx, cancel := patiently()
	defer cancel()
	var offsets []int64
	for _, result := range client.ProduceSync(ctx, records...) {
		if result.Err != nil {
			return nil, result.Err
		}
		offsets = append(offsets, result.Record.Offset)
	}
	return offsets, nil
}

func read(client *kgo.Client, count int) ([]contract.Entry, error) {
	ctx, cancel := patiently()
	defer cancel()
	var entries []contract.Entry
	for len(entries) < count {
		fetches := client.PollRecords(ctx, count-len(entries))
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil {
			return entries, err
		}
		for _, record := range fetches.Records() {
			entry := contract.Entry{Offset: record.Offset, Timestamp: record.Timestamp.UnixMilli(), Key: record.Key, Value: record.Value}
			if record.Timestamp.IsZero() {
				entry.Timestamp = -1
			}
			for _, header := range record.Headers {
				entry.Headers = append(entry.Headers, contract.Header{Name: header.Key, Value: header.Value})
			}
			entries = append(entries, entry)
		}
	}
	return entries, nil
}

func (f franz) Consume(topic string, count int) ([]contract.Entry, error) {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client, err := f.client(kgo.ConsumePartitions(start), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return read(client, count)
}

func (f franz) inGroup(group, topic string, more ...kgo.Opt) (*kgo.Client, error) {
	return f.client(append(more,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(20*time.Second),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.DisableAutoCommit(),
	)...)
}

func (f franz) Resume(group, topic string, first, count int) ([][]int64, error) {
	var found [][]int64
	for _, size := range []int{first, count - first} {
		client, err := f.inGroup(group, topic)
		if err != nil {
			return nil, err
		}
		entries, err := read(client, size)
		if err == nil {
			err = client.CommitUncommittedOffsets(context.Background())
		}
		client.Close()
		if err != nil {
			return nil, err
		}
		var offsets []int64
		for _, each := range entries {
			offsets = append(offsets, each.Offset)
		}
		found = append(found, offsets)
	}
	return found, nil
}

type member struct {
	client *kgo.Client
	state  contract.State
	done   chan struct{}
	stop   context.CancelFunc
}

func (m *member) State() *contract.State { return &m.state }

func (m *member) Leave() error {
	m.stop()
	<-m.done
	err := m.client.CommitUncommittedOffsets(context.Background())
	m.client.Close()
	return err
}

func (f franz) Join(group, topic string) (contract.Member, error) {
	ctx, stop := context.WithCancel(context.Background())
	m := &member{done: make(chan struct{}), stop: stop}
	gain := func(_ context.Context, _ *kgo.Client, gained map[string][]int32) {
		m.state.Assign(append(m.state.Partitions(), gained[topic]...))
	}
	lose := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		kept := slices.DeleteFunc(m.state.Partitions(), func(each int32) bool { return slices.Contains(lost[topic], each) })
		m.state.Assign(kept)
	}
	revoke := func(ctx context.Context, client *kgo.Client, lost map[string][]int32) {
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			m.state.Fail(err)
		}
		lose(ctx, client, lost)
	}
	client, err := f.inGroup(group, topic, kgo.OnPartitionsAssigned(gain), kgo.OnPartitionsRevoked(revoke), kgo.OnPartitionsLost(lose))
	if err != nil {
		stop()
		return nil, err
	}
	m.client = client
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil && ctx.Err() == nil {
				m.state.Fail(err)
				return
			}
			for _, record := range fetches.Records() {
				m.state.Add(record.Partition, record.Offset)
			}
		}
	}()
	return m, nil
}

func (f franz) Admin(topic, name, value string) (partitions int, found string, gone bool, err error) {
	client, err := f.client()
	if err != nil {
		return
	}
	defer client.Close()
	ctx, cancel := patiently()
	defer cancel()
	admin := kadm.NewClient(client)
	if _, err = admin.CreateTopic(ctx, 3, 1, map[string]*string{name: &value}, topic); err != nil {
		return
	}
	has := func() (bool, error) {
		topics, err := admin.ListTopics(ctx)
		partitions = len(topics[topic].Partitions)
		return topics.Has(topic) && partitions > 0, err
	}
	if err = contract.Until("the topic", has); err != nil {
		return
	}
	made := partitions
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return
	}
	config, err := configs.On(topic, nil)
	if err != nil {
		return
	}
	for _, each := range config.Configs {
		if each.Key == name {
			found = each.MaybeValue()
		}
	}
	deleted, err := admin.DeleteTopics(ctx, topic)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		return
	}
	err = contract.Until("deletion", func() (bool, error) {
		there, err := has()
		return !there, err
	})
	return made, found, err == nil, err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "franz BOOTSTRAP")
		os.Exit(2)
	}
	contract.Serve(franz{os.Args[1]})
}

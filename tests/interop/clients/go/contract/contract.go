// Package contract is the line protocol of ../../README.md for clients written in Go.
package contract

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Patience is how long to wait for a thing before it counts as not coming.
var Patience = patience()

// Release is the broker's, where it was told.
var Release string

// Settings are more of a client, by the names of librdkafka.
var Settings = map[string]string{}

func patience() time.Duration {
	if told := os.Getenv("CLIENT_SECONDS"); told != "" {
		return time.Duration(number(told)) * time.Second
	}
	return 60 * time.Second
}

// Header is a name and a value, which may be nil.
type Header struct {
	Name  string
	Value []byte
}

// Entry is a record: of the ledger when it goes out, of a topic when it came in.
type Entry struct {
	Offset    int64
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Position is a partition and an offset.
type Position struct {
	Partition int32
	Offset    int64
}

// Client has the verbs of a client under test.
type Client interface {
	Produce(topic, codec string, idempotent bool, entries []Entry) ([]int64, error)
	Consume(topic string, count int) ([]Entry, error)
	Resume(group, topic string, first, count int) ([][]int64, error)
	Join(group, topic string) (Member, error)
	Admin(topic, name, value string) (partitions int, found string, gone bool, err error)
}

// Member is a member of a group, which reads and commits by itself.
type Member interface {
	State() *State
	Leave() error
}

// State is what a member has and had. The zero value is ready.
type State struct {
	lock       sync.Mutex
	partitions []int32
	read       map[Position]bool
	failure    error
}

// Assign replaces the partitions of the member.
func (s *State) Assign(partitions []int32) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.partitions = slices.Sorted(slices.Values(partitions))
}

// Partitions returns what the member is assigned now.
func (s *State) Partitions() []int32 {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]int32{}, s.partitions...)
}

// Add notes a record that came.
func (s *State) Add(partition int32, offset int64) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.read == nil {
		s.read = map[Position]bool{}
	}
	s.read[Position{partition, offset}] = true
}

// Fail notes that the member cannot go on.
func (s *State) Fail(err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.failure = err
}

func (s *State) addTo(all map[Position]bool) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	for position := range s.read {
		all[position] = true
	}
	return s.failure
}

// Until waits until something is so.
func Until(what string, reached func() (bool, error)) error {
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if done, err := reached(); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("waited in vain for %s", what)
}

// Serve answers commands until standard input ends. Whatever goes wrong in one is its answer.
func Serve(client Client) {
	say(map[string]any{"ready": true})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		reply, err := answer(client, strings.Split(lines.Text(), "\t"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			reply = map[string]any{"error": err.Error()}
		}
		say(reply)
	}
}

func say(reply map[string]any) {
	line, err := json.Marshal(reply)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func answer(client Client, words []string) (map[string]any, error) {
	switch words[0] {
	case "release":
		Release = words[1]
		return map[string]any{}, nil
	case "settings":
		text, err := os.ReadFile(words[1])
		if err != nil {
			return nil, err
		}
		clear(Settings)
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			Settings[name] = value
		}
		return map[string]any{}, nil
	case "produce":
		entries, err := ledger(words[4])
		if err != nil {
			return nil, err
		}
		offsets, err := client.Produce(words[1], words[2], words[3] == "1", entries)
		return map[string]any{"offsets": offsets}, err
	case "consume":
		entries, err := client.Consume(words[1], number(words[2]))
		records := make([]any, 0, len(entries))
		for _, each := range entries {
			headers := make([]any, 0, len(each.Headers))
			for _, header := range each.Headers {
				headers = append(headers, []any{[]byte(header.Name), header.Value})
			}
			records = append(records, []any{each.Offset, each.Timestamp, each.Key, each.Value, headers})
		}
		return map[string]any{"records": records}, err
	case "resume":
		read, err := client.Resume(words[1], words[2], number(words[3]), number(words[4]))
		return map[string]any{"read": read}, err
	case "group":
		return rebalance(client, words[1], words[2], number(words[3]))
	case "admin":
		partitions, value, gone, err := client.Admin(words[1], words[2], words[3])
		return map[string]any{"partitions": partitions, "value": value, "gone": gone}, err
	}
	return nil, fmt.Errorf("unknown: %s", words[0])
}

func number(word string) int {
	value, err := strconv.Atoi(word)
	if err != nil {
		panic(err)
	}
	return value
}

func bytesOf(cell string) []byte {
	if cell == "~" {
		return nil
	}
	bytes, err := base64.StdEncoding.DecodeString(cell)
	if err != nil {
		panic(err)
	}
	return bytes
}

func ledger(path string) ([]Entry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		entry := Entry{Timestamp: int64(number(cells[0])), Key: bytesOf(cells[1]), Value: bytesOf(cells[2])}
		for i := 3; i < len(cells); i += 2 {
			entry.Headers = append(entry.Headers, Header{string(bytesOf(cells[i])), bytesOf(cells[i+1])})
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// rebalance lets a member join a group, then another, lets that one leave; all records are read meanwhile.
func rebalance(client Client, group, topic string, count int) (map[string]any, error) {
	one, err := client.Join(group, topic)
	if err != nil {
		return nil, err
	}
	has := func(member Member, partitions int) bool { return len(member.State().Partitions()) == partitions }
	if err := Until("one member", func() (bool, error) { return has(one, 2), nil }); err != nil {
		return nil, err
	}
	stages := [][][]int32{{one.State().Partitions()}}
	two, err := client.Join(group, topic)
	if err != nil {
		return nil, err
	}
	if err := Until("two members", func() (bool, error) { return has(one, 1) && has(two, 1), nil }); err != nil {
		return nil, err
	}
	stages = append(stages, [][]int32{one.State().Partitions(), two.State().Partitions()})
	if err := two.Leave(); err != nil {
		return nil, err
	}
	if err := Until("one member again", func() (bool, error) { return has(one, 2), nil }); err != nil {
		return nil, err
	}
	stages = append(stages, [][]int32{one.State().Partitions()})
	all := map[Position]bool{}
	err = Until("all records", func() (bool, error) {
		if err := two.State().addTo(all); err != nil {
			return false, err
		}
		err := one.State().addTo(all)
		return len(all) >= count, err
	})
	if err != nil {
		return nil, err
	}
	read := [][]int64{}
	for position := range all {
		read = append(read, []int64{int64(position.Partition), position.Offset})
	}
	return map[string]any{"stages": stages, "read": read}, one.Leave()
}

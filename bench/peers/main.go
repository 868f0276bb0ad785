// Command peers puts on other brokers the load that bench/loadgen puts on ours, through their own Go clients.
//
//	peers SYSTEM ADDRESS[,ADDRESS...] [-seconds S] [-rate MSGS_PER_S] [-window N] [-size BYTES] [-replicas N]
//
// SYSTEM is nats, redis or rabbitmq. With `replicas` the stream or queue has as many members; the connections go to the
// member that leads it, so that nothing is forwarded (NATS: to the addresses of all servers; RabbitMQ: to one node, which
// then leads). One connection publishes and one consumes; every message is confirmed to the
// publisher and acknowledged by the consumer. Without a rate up to `window` messages are unconfirmed at a time; with
// one the schedule does not wait (open loop) and latency counts from when a message was due. Prints one JSON object
// with the names bench/loadgen uses.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// A broker under load. Publish is called by one goroutine and must not wait for the confirmation; Flush sends what is
// buffered; confirmed is called, in publishing order, when a message is. Consume delivers until stop is closed.
type broker interface {
	Setup() error
	StartPublisher(confirmed func(due int64)) error
	Publish(body []byte, due int64) error
	Flush() error
	Consume(deliver func(body []byte), ready func(), stop <-chan struct{}) error
}

type options struct {
	addresses []string
	seconds   float64
	rate      float64
	window    int
	size      int
	replicas  int
}

func main() {
	if len(os.Args) < 3 {
		fail("usage: peers nats|redis|rabbitmq ADDRESS[,ADDRESS...] [options]", nil)
	}
	o := options{addresses: strings.Split(os.Args[2], ",")}
	flags := flag.NewFlagSet("peers", flag.ExitOnError)
	flags.Float64Var(&o.seconds, "seconds", 3, "how long to publish")
	flags.Float64Var(&o.rate, "rate", 0, "open loop: messages a second")
	flags.IntVar(&o.window, "window", 1600, "closed loop: messages not yet confirmed")
	flags.IntVar(&o.size, "size", 1024, "bytes per message, at least 16")
	flags.IntVar(&o.replicas, "replicas", 1, "members of the stream or queue (nats, rabbitmq)")
	flags.Parse(os.Args[3:])
	var b broker
	switch os.Args[1] {
	case "nats":
		b = &natsBroker{o: o}
	case "redis":
		if o.replicas != 1 {
			fail("redis has no replicas here", nil)
		}
		b = &redisBroker{o: o}
	case "rabbitmq":
		b = &rabbitBroker{o: o}
	default:
		fail("unknown system "+os.Args[1], nil)
	}
	if err := b.Setup(); err != nil {
		fail("setup", err)
	}
	report := run(b, o)
	text, _ := json.Marshal(report)
	fmt.Println(string(text))
}

func run(b broker, o options) map[string]any {
	var published, confirmed, received atomic.Int64
	publishLatency, deliveryLatency := newLatencies(), newLatencies()
	seen := newSeen()
	tokens := make(chan struct{}, o.window)
	if err := b.StartPublisher(func(due int64) {
		publishLatency.add(monotonic() - due)
		confirmed.Add(1)
		if o.rate == 0 {
			<-tokens
		}
	}); err != nil {
		fail("publisher", err)
	}
	ready, stop, consumed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var last, lastNew atomic.Int64
	go func() {
		consumed <- b.Consume(func(body []byte) {
			now := monotonic()
			due, sequence := readStamp(body)
			deliveryLatency.add(now - due)
			if seen.add(sequence) {
				lastNew.Store(now)
			}
			last.Store(now)
			received.Add(1)
		}, func() { close(ready) }, stop)
	}()
	select {
	case <-ready:
	case err := <-consumed:
		fail("consumer", err)
	case <-time.After(20 * time.Second):
		fail("the consumer did not start", nil)
	}
	time.Sleep(100 * time.Millisecond)
	start := monotonic()
	cpu := cpuSeconds()
	publishAll(b, o, start, tokens, &published)
	wait(10*time.Second, func() bool { return confirmed.Load() >= published.Load() })
	publishEnd := monotonic()
	wait(30*time.Second, func() bool { return seen.distinct.Load() >= confirmed.Load() })
	cpu = cpuSeconds() - cpu
	close(stop)
	select {
	case <-consumed:
	case <-time.After(3 * time.Second):
	}
	n := max(1, received.Load())
	report := map[string]any{
		"published": confirmed.Load(), "publish_msgs_per_s": rate(confirmed.Load(), start, publishEnd),
		"received": received.Load(), "distinct": seen.distinct.Load(),
		"duplicates":               received.Load() - seen.distinct.Load(),
		"missing":                  max(0, confirmed.Load()-seen.distinct.Load()),
		"errors":                   published.Load() - confirmed.Load(),
		"delivery_msgs_per_s":      rate(seen.distinct.Load(), start, lastNew.Load()),
		"generator_cpu_seconds":    cpu,
		"generator_cpu_us_per_msg": cpu * 1e6 / float64(n),
	}
	publishLatency.report(report, "publish")
	deliveryLatency.report(report, "delivery")
	return report
}

// publishAll keeps the window full, or keeps the schedule.
func publishAll(b broker, o options, start int64, tokens chan struct{}, published *atomic.Int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	body := filler(o.size)
	end := start + int64(o.seconds*1e9)
	for i := int64(0); ; i++ {
		due := monotonic()
		if o.rate > 0 {
			due = start + int64(float64(i)*1e9/o.rate)
		}
		if due >= end {
			break
		}
		if o.rate > 0 {
			sleepUntil(due)
		} else {
			select {
			case tokens <- struct{}{}:
			default: // the window is full: what is buffered must leave before waiting
				if err := b.Flush(); err != nil {
					fail("flush", err)
				}
				tokens <- struct{}{}
			}
			due = monotonic()
		}
		writeStamp(body, due, uint32(i))
		if err := b.Publish(body, due); err != nil {
			fail("publish", err)
		}
		published.Add(1)
		if o.rate > 0 {
			if err := b.Flush(); err != nil {
				fail("flush", err)
			}
		}
	}
	if err := b.Flush(); err != nil {
		fail("flush", err)
	}
}

func wait(limit time.Duration, done func() bool) {
	for giveUp := time.Now().Add(limit); !done() && time.Now().Before(giveUp); {
		time.Sleep(2 * time.Millisecond)
	}
}

func rate(count, from, to int64) float64 {
	if to <= from {
		return 0
	}
	return float64(count) * 1e9 / float64(to-from)
}

func fail(what string, err error) {
	fmt.Fprintln(os.Stderr, "peers:", what, err)
	os.Exit(1)
}

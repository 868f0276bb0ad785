package main

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	clockMonotonic  = 1
	clockProcessCPU = 2
	timerAbsolute   = 1
)

func clock(id uintptr) int64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// Go's monotonic clock is the same one, read without a system call.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

func monotonic() int64 { return nanotime() }

func cpuSeconds() float64 { return float64(clock(clockProcessCPU)) / 1e9 }

// sleepUntil uses the kernel's timer: the runtime's timers wake up too late for a schedule of 1,000 a second.
func sleepUntil(ns int64) {
	t := syscall.NsecToTimespec(ns)
	for monotonic() < ns {
		syscall.Syscall6(syscall.SYS_CLOCK_NANOSLEEP, clockMonotonic, timerAbsolute, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
	}
}

// The first 16 bytes of a body: when it was due (u64), a run (unused here), its number (u32).
func writeStamp(body []byte, due int64, sequence uint32) {
	binary.LittleEndian.PutUint64(body, uint64(due))
	binary.LittleEndian.PutUint32(body[12:], sequence)
}

func readStamp(body []byte) (due int64, sequence uint32) {
	return int64(binary.LittleEndian.Uint64(body)), binary.LittleEndian.Uint32(body[12:])
}

func filler(size int) []byte {
	body := make([]byte, max(16, size))
	state := uint32(2463534242)
	for i := range body {
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		body[i] = byte(state)
	}
	return body
}

type latencies struct {
	mutex  sync.Mutex
	values []int64
}

func newLatencies() *latencies { return &latencies{values: make([]int64, 0, 1<<20)} }

func (l *latencies) add(ns int64) {
	l.mutex.Lock()
	l.values = append(l.values, ns)
	l.mutex.Unlock()
}

func (l *latencies) report(into map[string]any, prefix string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	slices.Sort(l.values)
	at := func(share float64) float64 {
		if len(l.values) == 0 {
			return 0
		}
		return float64(l.values[int(share*float64(len(l.values)-1))]) / 1e6
	}
	into[prefix+"_p50_ms"], into[prefix+"_p99_ms"], into[prefix+"_p999_ms"] = at(0.5), at(0.99), at(0.999)
	into[prefix+"_max_ms"] = at(1)
}

// Which messages arrived. One goroutine adds, others read the count.
type seen struct {
	words    []uint64
	distinct atomic.Int64
}

func newSeen() *seen { return &seen{words: make([]uint64, 1<<16)} }

func (s *seen) add(sequence uint32) bool {
	word := int(sequence >> 6)
	if word >= len(s.words) {
		s.words = append(s.words, make([]uint64, word+1)...)
	}
	bit := uint64(1) << (sequence & 63)
	if s.words[word]&bit != 0 {
		return false
	}
	s.words[word] |= bit
	s.distinct.Add(1)
	return true
}

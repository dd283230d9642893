//go:build e2e

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/lab"
)

// machine is the one that all nodes are on.
var machine pulse

// pulse notes what the machine cost everybody: when it stood still (a process that does next to nothing did not get on, or did not get
// a few bytes to the disk), and how many were waiting for its processors.
type pulse struct {
	mu    sync.Mutex
	beats []beat
}

// beat is a standstill, or a look at the load.
type beat struct {
	begin time.Time
	took  time.Duration
	crowd float64
}

const (
	pulseEvery = 100 * time.Millisecond
	// stillFrom is what counts as a standstill.
	stillFrom = 300 * time.Millisecond
	// crowdEvery is how often the load is looked at, which is a mean of a minute anyway.
	crowdEvery = 2 * time.Second
	// crowdMost bounds what is granted for a crowd.
	crowdMost = 3
	// fits is how many may be running or waiting on each processor while times still mean something: three nodes alone are that many at times.
	fits = 4
)

// watch feels the pulse until ctx ends.
func (p *pulse) watch(ctx context.Context) {
	f, err := os.Create(filepath.Join(lab.Dir(), "pulse"))
	if err != nil {
		logf("pulse: %v", err)
		return
	}
	defer func() { _ = f.Close() }()
	tick := time.NewTicker(pulseEvery)
	defer tick.Stop()
	looked := time.Time{}
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := f.WriteAt([]byte("pulse"), 0); err != nil {
			logf("pulse: %v", err)
			return
		}
		if err := f.Sync(); err != nil {
			logf("pulse: %v", err)
			return
		}
		now := time.Now()
		if took := now.Sub(last); took > stillFrom {
			p.note(beat{begin: last, took: took})
		}
		if last = now; now.Sub(looked) > crowdEvery {
			looked = now
			p.note(beat{begin: now, crowd: crowd()})
		}
	}
}

func (p *pulse) note(b beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats = append(p.beats, b)
}

// crowd is the machine's load, as a multiple of what fits, from 1 to crowdMost.
func crowd() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 1
	}
	load := 0.0
	if _, err := fmt.Sscan(string(b), &load); err != nil {
		return 1
	}
	return min(max(1, load/float64(fits*runtime.NumCPU())), crowdMost)
}

// between returns the longest standstill that touches the time from begin to end, and the greatest crowd then.
func (p *pulse) between(begin, end time.Time) (still time.Duration, most float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most = 1
	for _, b := range p.beats {
		if b.begin.Before(end) && b.begin.Add(max(b.took, crowdEvery)).After(begin) {
			still, most = max(still, b.took), max(most, b.crowd)
		}
	}
	return still, most
}

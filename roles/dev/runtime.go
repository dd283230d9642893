package dev

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tak-os.org/tak-replicated/roles/boot"
)

// Runtime is run/dev.json: what runs where at this moment. It is written anew
// at every change, and left behind when dev is killed.
type Runtime struct {
	Version  int              `json:"version"`
	Volume   string           `json:"volume"`
	PID      int              `json:"pid"` // of dev
	Started  time.Time        `json:"started"`
	Running  bool             `json:"running"` // false after an orderly end
	Replicas []RuntimeReplica `json:"replicas"`
	Mounts   []RuntimeMount   `json:"mounts"`
}

// RuntimeReplica is where a replica's worker is.
type RuntimeReplica struct {
	Replica string `json:"replica"`
	Member  uint64 `json:"member"`
	Addr    string `json:"addr"`
	Dir     string `json:"dir"`
	PID     int    `json:"pid"`
}

// RuntimeMount is a mount and the socket of its owner.
type RuntimeMount struct {
	Mountpoint string `json:"mountpoint"`
	Socket     string `json:"socket"`
	PID        int    `json:"pid"` // of the owner's first process: the keeper, or dev itself
}

const runtimeVersion = 1

func runtimeFile(dir string) string { return filepath.Join(dir, "run", "dev.json") }

// ReadRuntime reads what runs, or last ran, in dir.
func ReadRuntime(dir string) (*Runtime, error) {
	text, err := os.ReadFile(runtimeFile(dir))
	if err != nil {
		return nil, err
	}
	return parseRuntime(text)
}

func parseRuntime(text []byte) (*Runtime, error) {
	var r Runtime
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("run/dev.json: %w", err)
	}
	if r.Version != runtimeVersion {
		return nil, fmt.Errorf("run/dev.json: version %d is unknown", r.Version)
	}
	return &r, nil
}

// board keeps run/dev.json. Safe for concurrent use.
type board struct {
	dir string
	mu  struct {
		sync.Mutex
		Runtime
	}
}

func newBoard(dir, volume string) *board {
	b := &board{dir: dir}
	b.mu.Runtime = Runtime{Version: runtimeVersion, Volume: volume, PID: os.Getpid(), Started: time.Now().UTC(), Running: true}
	return b
}

// update changes what is told and writes it.
func (b *board) update(change func(*Runtime)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.mu.Runtime)
	return boot.WriteJSON(runtimeFile(b.dir), &b.mu.Runtime, true)
}

func (b *board) replica(r RuntimeReplica) error {
	return b.update(func(rt *Runtime) {
		i := slices.IndexFunc(rt.Replicas, func(o RuntimeReplica) bool { return o.Replica == r.Replica })
		if i < 0 {
			rt.Replicas = append(rt.Replicas, r)
			slices.SortFunc(rt.Replicas, func(a, b RuntimeReplica) int { return cmp.Compare(a.Member, b.Member) })
			return
		}
		rt.Replicas[i] = r
	})
}

func (b *board) mount(m RuntimeMount) error {
	return b.update(func(rt *Runtime) {
		i := slices.IndexFunc(rt.Mounts, func(o RuntimeMount) bool { return o.Mountpoint == m.Mountpoint })
		if i < 0 {
			rt.Mounts = append(rt.Mounts, m)
			slices.SortFunc(rt.Mounts, func(a, b RuntimeMount) int { return cmp.Compare(a.Mountpoint, b.Mountpoint) })
			return
		}
		rt.Mounts[i] = m
	})
}

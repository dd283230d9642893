package dev

import (
	"fmt"
	"hash/fnv"
	"path/filepath"
	"time"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/worker"
)

// Config is what the flags say.
type Config struct {
	Dir        string
	Replicas   int // 0: as DIR was made, or 3
	Mount      string
	Mounts     int
	Processes  bool
	QuorumWait time.Duration
	// Bounds of each replica; see roles/worker.
	ReserveBytes    uint64
	CheckpointBytes int64
	JournalBytes    int64
	Boot            boot.Config
}

// mountsMost bounds the mounts of one dev.
const mountsMost = 16

// complete checks the configuration and fills in what was left out.
func (c *Config) complete() error {
	if c.Dir == "" {
		return boot.Usagef("--dir is empty")
	}
	if c.Replicas < 0 || c.Replicas > 4 {
		return boot.Usagef("--replicas: %d is not 1 to 4", c.Replicas)
	}
	if c.Mounts < 1 || c.Mounts > mountsMost {
		return boot.Usagef("--mounts: %d is not 1 to %d", c.Mounts, mountsMost)
	}
	if c.QuorumWait < 0 {
		return boot.Usagef("--quorum-wait: %s is negative", c.QuorumWait)
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	if c.Mount == "" {
		c.Mount = filepath.Join(c.Dir, "mnt")
	}
	if c.Mount, err = filepath.Abs(c.Mount); err != nil {
		return err
	}
	if c.Mount == "/" {
		return boot.Usagef("--mount: / can't be mounted over")
	}
	return nil
}

// mountpoint is where the n-th mount is, from 1.
func (c *Config) mountpoint(n int) string {
	if n == 1 {
		return c.Mount
	}
	return fmt.Sprintf("%s-%d", c.Mount, n)
}

// socket is where the owner of the n-th mount answers: in DIR/run, unless that
// path is too long for a socket.
func (c *Config) socket(n int) string {
	return c.socketNamed(fmt.Sprintf("mount-%d.sock", n))
}

func (c *Config) socketNamed(name string) string {
	path := filepath.Join(c.Dir, "run", name)
	if len(path) <= mountowner.SocketPathMost-socketSpare {
		return path
	}
	sum := fnv.New64a()
	sum.Write([]byte(c.Dir))
	return filepath.Join("/run/tak-replicated", fmt.Sprintf("dev-%016x", sum.Sum64()), name)
}

// socketSpare is room for what an owner appends to its socket's name.
const socketSpare = 16

// plan is one replica's place.
type plan struct {
	n    int
	addr string
}

// worker is the configuration of a replica's worker.
func (c *Config) worker(s *settings, p plan, t seat, members []worker.Member, trust string) worker.Config {
	return worker.Config{
		Dir: filepath.Join(c.Dir, t.Folder), Volume: s.Volume, Replica: replicaName(p.n), Incarnation: t.Incarnation,
		Listen: p.addr, Members: members, Trust: trust, Bootstrap: !s.Initialised,
		Record: filepath.Join(c.Dir, "records", replicaName(p.n)+".json"),
		// All replicas share one disk: each keeps back what all of them need.
		ReserveBytes:    c.ReserveBytes * uint64(s.Replicas),
		CheckpointBytes: c.CheckpointBytes, JournalBytes: c.JournalBytes, RebuildRate: worker.DefaultRebuildRate, TTL: worker.DefaultTTL,
		Boot: boot.Config{LogLevel: c.Boot.LogLevel, LogFormat: c.Boot.LogFormat},
	}
}

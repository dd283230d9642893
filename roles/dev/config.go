package dev

import (
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
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
	// WriteBehind bounds what each mount has answered ahead of the log.
	WriteBehind client.Limits
	Boot        boot.Config
}

// mountsMost bounds the mounts of one dev.
const mountsMost = 16

// reserveMost bounds the reserve of one replica: 1 EiB, so that the sum of all fits.
const reserveMost = 1 << 60

// complete checks the configuration and fills in what was left out.
func (c *Config) complete() error {
	if err := mountowner.CheckLimits(c.WriteBehind); err != nil {
		return err
	}
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
	if c.ReserveBytes > reserveMost {
		return boot.Usagef("--reserve-bytes: %d is more than %d", c.ReserveBytes, uint64(reserveMost))
	}
	if err := worker.CheckSizes(c.CheckpointBytes, c.JournalBytes); err != nil {
		return err
	}
	if addr := c.Boot.MetricsAddr; addr != "" {
		if _, err := net.ResolveTCPAddr("tcp", addr); err != nil {
			return boot.Usagef("--metrics-addr: %w", err)
		}
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
	for _, mnt := range c.mountpoints() {
		if c.covers(mnt) {
			return boot.Usagef("--mount: %s would cover what dev keeps in --dir %s: give another folder", mnt, c.Dir)
		}
	}
	return nil
}

// covers reports whether a mount at mnt would hide what dev keeps in DIR from
// itself: the volume would wait for the files that are beneath it.
func (c *Config) covers(mnt string) bool {
	inside, err := filepath.Rel(mnt, c.Dir)
	if err == nil && inside != ".." && !strings.HasPrefix(inside, "../") {
		return true
	}
	below, err := filepath.Rel(c.Dir, mnt)
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(below, "/")
	switch first {
	case "lock", settingsFile, "trust", "records", "run":
		return true
	}
	return strings.HasPrefix(first, "replica-")
}

// folders checks, before anything is made, that what must be folders is nothing
// else and has nobody else's files, and that nothing is mounted where the volume is to be but what an earlier
// dev of this DIR left. That is not looked at, since it may not answer.
func (c *Config) folders() error {
	if st, err := os.Stat(c.Dir); err == nil && !st.IsDir() {
		return boot.Usagef("--dir: %s is not a folder", c.Dir)
	}
	if err := c.checkFresh(); err != nil {
		return err
	}
	for _, mnt := range c.mountpoints() {
		typ, source, err := mountedAt(mnt)
		if err != nil {
			return err
		}
		if typ == "" {
			if st, err := os.Stat(mnt); err == nil && !st.IsDir() {
				return boot.Usagef("--mount: %s is not a folder", mnt)
			}
			if err := checkBare(mnt); err != nil {
				return err
			}
			continue
		}
		if typ != fsType || source != mountSource(c.volume()) {
			return boot.Usagef("--mount: %s (%s) is mounted at %s: unmount it, or give another folder", source, typ, mnt)
		}
	}
	return nil
}

// volume is the volume in DIR, empty if none was made.
func (c *Config) volume() string {
	text, err := os.ReadFile(filepath.Join(c.Dir, settingsFile))
	if err != nil {
		return ""
	}
	s, err := parseSettings(text)
	if err != nil {
		return "" // openSettings tells
	}
	return s.Volume
}

// mountSource is the source under which mounts of a volume are listed.
func mountSource(volume string) string { return boot.Name + ":" + volume }

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

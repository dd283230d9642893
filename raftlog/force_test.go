package raftlog_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestForceFinishesInstallation: the power goes when a received checkpoint is the
// machine's state and the journal is still the old one. The replica can be forced to go
// on alone from there, as it could be opened.
func TestForceFinishesInstallation(t *testing.T) {
	c := newCluster(t, 95, 3)
	_, slow := fall(t, c)
	if slow.down {
		slow.start()
	}
	old, begun := slow.toy.snapshot().Index, false
	slow.failWith(func(_ disk.Op, file string) error {
		begun = begun || strings.HasPrefix(file, "/log/install")
		if begun && strings.HasPrefix(file, "/log/journal") {
			return errors.New("power cut")
		}
		return nil
	})
	for range 50_000 {
		c.step()
		if slow.dead != nil {
			break
		}
	}
	slow.failWith(nil)
	slow.crash(disk.KeepAll)
	if _, err := slow.disk.Stat("/log/install"); err != nil {
		t.Fatalf("no installation was interrupted: %v", err)
	}
	m, err := openToy(slow.fs(), "/toy")
	if err != nil {
		t.Fatal(err)
	}
	got, _ := m.Applied()
	if got <= old {
		t.Fatalf("the state is that of %d, and was that of %d", got, old)
	}
	next := raftlog.Identity{Volume: "v", Replica: c.identity(slow.id).Replica, Incarnation: 2, Member: 9}
	if err := raftlog.Force(slow.config(m, nil), next); err != nil {
		t.Fatal(err)
	}
	if at, _ := m.Applied(); at != got+1 {
		t.Fatalf("the new life begins at %d, not at %d", at, got+1)
	}
}

// TestMarkOfForceThatCannotBeRead: whether a forced replacement is unfinished is not known
// where the disk does not say, and the replica is not opened.
func TestMarkOfForceThatCannotBeRead(t *testing.T) {
	nd := newCluster(t, 96, 1).nodes[0]
	nd.crash(disk.KeepAll)
	nd.failWith(func(_ disk.Op, file string) error {
		if file == "/log/forced" {
			return syscall.EIO
		}
		return nil
	})
	if err := nd.tryStart(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("opened with %v", err)
	}
	nd.failWith(nil)
	if err := nd.tryStart(); err != nil {
		t.Fatalf("not opened with a disk that reads: %v", err)
	}
}

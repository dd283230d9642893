//go:build e2e

package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"tak-os.org/tak-replicated/e2e/cluster/lab"
	"tak-os.org/tak-replicated/kube/api"
)

const (
	manyClaims = 100 // at once
	manyWithin = 5 * time.Minute
	// hostWorkers and hostMemory are what one replica host serves, and within how much memory (D9, D10).
	hostWorkers = 128
	hostMemory  = 768 << 20
	// manyBytes is what the copies of so many empty volumes take on the machine's disk, with room to spare: a full disk keeps nodes from
	// taking Pods for minutes.
	manyBytes = 20 << 30
)

// TestManyClaims asks for 100 volumes with three copies at once, and then for more than a replica host serves: those above wait, and say for what (D9,
// D10). E2E_CLAIMS is another number for the first.
func TestManyClaims(t *testing.T) {
	ours(t)
	var disk unix.Statfs_t
	if err := unix.Statfs(lab.Dir(), &disk); err != nil {
		t.Fatal(err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < manyBytes {
		t.Fatalf("the disk of %s has %d GiB, %d are needed", lab.Dir(), free>>30, uint64(manyBytes)>>30)
	}
	first := manyClaims
	if n, err := strconv.Atoi(os.Getenv("E2E_CLAIMS")); err == nil {
		first = n
	}
	ns := namespace(t, "many")
	begin := time.Now()
	applyClaims(t, ns, 0, first)
	bound(t, ns, first, manyWithin)
	t.Logf("%d claims of three copies are bound after %.0f s", first, time.Since(begin).Seconds())
	allInSync(t, first, manyWithin-time.Since(begin))
	t.Logf("all copies of %d volumes are in sync after %.0f s", first, time.Since(begin).Seconds())
	memoryOfHosts(t)

	applyClaims(t, ns, first, hostWorkers+2)
	bound(t, ns, hostWorkers, manyWithin)
	t.Logf("%d claims are bound after %.0f s", hostWorkers, time.Since(begin).Seconds())
	eventually(t, settle, "two volumes wait for a place, and say so", func() error {
		list, err := get[api.ReplicatedVolumeList]("-n", "kube-system", "replicatedvolumes")
		if err != nil {
			return err
		}
		waiting := map[string]bool{}
		for _, v := range list.Items {
			for _, r := range v.Status.Replicas {
				if r.Reason == api.HostReasonTooManyWorkers {
					waiting[v.Name] = true
				}
			}
			if c := v.Condition(api.ConditionProvisioned); waiting[v.Name] && (c == nil || c.Status == "True") {
				return fmt.Errorf("%s waits for a place, and its condition is %+v", v.Name, c)
			}
		}
		if len(waiting) != 2 {
			return fmt.Errorf("%d of %d volumes", len(waiting), len(list.Items))
		}
		return nil
	})
	memoryOfHosts(t)

	must(t, "-n", ns, "delete", "pvc", "--all", "--wait=false")
	eventually(t, 2*manyWithin, "all volumes gone", func() error {
		time.Sleep(2 * time.Second)
		out, err := try("-n", "kube-system", "get", "replicatedvolumes", "-o", "name")
		if n := len(strings.Fields(out)); err == nil && n > 0 {
			err = fmt.Errorf("%d are left", n)
		}
		return err
	})
}

func applyClaims(t *testing.T, ns string, from, to int) {
	t.Helper()
	var all strings.Builder
	for i := from; i < to; i++ {
		all.WriteString(claim(ns, fmt.Sprintf("c%d", i), "tak-replicated", "ReadWriteMany"))
	}
	apply(t, all.String())
}

// allInSync waits until every copy of as many volumes takes part, and has what was on a quorum when this began.
func allInSync(t *testing.T, volumes int, within time.Duration) {
	t.Helper()
	hosts := map[string]string{}
	for _, n := range setup.nodes {
		hosts[n] = podOn(t, api.ComponentNode, n).Name
	}
	want := map[string]float64{}
	eventually(t, within, fmt.Sprintf("all copies of %d volumes in sync", volumes), func() error {
		copies, behind := 0, ""
		for _, pod := range hosts {
			all, err := hostStandings(pod + ":9813")
			if err != nil {
				return err
			}
			for replica, s := range all {
				volume := s.volume
				if _, ok := want[volume]; !ok {
					want[volume] = s.commit
				}
				if copies++; !s.inSync(want[volume]) {
					behind = replica
				}
			}
		}
		if len(want) != volumes || copies != 3*volumes || behind != "" {
			return fmt.Errorf("%d copies of %d volumes, and %s is behind", copies, len(want), behind)
		}
		return nil
	})
}

// bound waits until as many claims are.
func bound(t *testing.T, ns string, want int, within time.Duration) {
	t.Helper()
	eventually(t, within, fmt.Sprintf("%d claims bound", want), func() error {
		list, err := get[corev1.PersistentVolumeClaimList]("-n", ns, "pvc")
		if err != nil {
			return err
		}
		got := 0
		for _, c := range list.Items {
			if c.Status.Phase == corev1.ClaimBound {
				got++
			}
		}
		if got < want {
			time.Sleep(2 * time.Second)
			return fmt.Errorf("%d of %d; %s", got, len(list.Items), whyNot(ns))
		}
		return nil
	})
}

// memoryOfHosts asserts how much memory the replica hosts' containers use, as the kernel counts it against their limit: the peak, which has the pages of
// files that can be dropped, too, and what is left without these. None was killed for want of memory.
func memoryOfHosts(t *testing.T) {
	t.Helper()
	for _, n := range setup.nodes {
		m := containerMemory(t, n, podOn(t, api.ComponentNode, n), "replica-host")
		t.Logf("replica host of %s: %d MiB, %d MiB without pages of files that can be dropped; limit %d MiB, killed %d times", n, m.used>>20, (m.used-m.droppable)>>20, m.limit>>20, m.killed)
		if m.used > hostMemory || m.limit > hostMemory || m.killed > 0 {
			t.Errorf("the replica host of %s: %+v", n, m)
		}
	}
}

// memory is what a cgroup says of its memory, in bytes.
type memory struct {
	used, droppable, limit int64
	killed                 int64 // processes that were killed for want of it
}

// containerMemory asks the cgroup of a container.
func containerMemory(t *testing.T, node string, p corev1.Pod, container string) memory {
	t.Helper()
	id := ""
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == container {
			_, id, _ = strings.Cut(c.ContainerID, "://")
		}
		if c.LastTerminationState.Terminated != nil && c.LastTerminationState.Terminated.Reason == "OOMKilled" {
			t.Errorf("container %s on %s was killed for want of memory", c.Name, node)
		}
	}
	// Version 2 has one folder with all of it, version 1 another name for each.
	out := inNode(t, node, `cd "$(find /sys/fs/cgroup -type d -path '*memory*' -name '`+id+`' | grep . || find /sys/fs/cgroup -type d -name '`+id+`')" || exit
if [ -e memory.current ]; then
  cat memory.current memory.max; sed -n 's/^inactive_file //p' memory.stat; sed -n 's/^oom_kill //p' memory.events
else
  cat memory.usage_in_bytes memory.limit_in_bytes; sed -n 's/^total_inactive_file //p' memory.stat; sed -n 's/^oom_kill //p' memory.oom_control
fi`)
	var m memory
	if _, err := fmt.Sscan(out, &m.used, &m.limit, &m.droppable, &m.killed); err != nil {
		t.Fatalf("cgroup of %s on %s: %v: %q", container, node, err, out)
	}
	return m
}

//go:build e2e

package cluster

import (
	"fmt"
	"os"
	"regexp"
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

var residentBytes = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)

// memoryOfHosts asserts how much memory the replica hosts use.
func memoryOfHosts(t *testing.T) {
	t.Helper()
	for _, n := range setup.nodes {
		out := must(t, "get", "--raw", "/api/v1/namespaces/kube-system/pods/"+hostPod(t, n)+":9813/proxy/metrics")
		m := residentBytes.FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("the replica host of %s says nothing of its memory", n)
		}
		bytes, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("replica host of %s: %.0f MiB", n, bytes/(1<<20))
		if bytes > hostMemory {
			t.Errorf("the replica host of %s uses %.0f MiB", n, bytes/(1<<20))
		}
	}
}

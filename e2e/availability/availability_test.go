package availability

import (
	"fmt"
	"os"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/volumetest"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// serves says with how many replicas of how many a volume goes on.
func serves(left, replicas int) bool { return left > replicas/2 }

// TestReplicasAway stops replicas, the coordinator first. With a quorum the volume
// goes on; without, calls fail when their time is up, and nothing weaker takes the
// quorum's place. When they are back so is everything, by itself.
func TestReplicasAway(t *testing.T) {
	for replicas := 1; replicas <= 4; replicas++ {
		for away := 1; away <= replicas; away++ {
			t.Run(fmt.Sprintf("%d of %d", away, replicas), func(t *testing.T) {
				t.Parallel()
				v := volumetest.New(t, volumetest.Options{Replicas: replicas})
				v.StartAll()
				patient, hasty := v.Client(time.Minute), v.Client(2*time.Second)
				patient.Write("before", []byte("before"))
				hasty.File("before") // it is attached
				c := hasty
				if serves(replicas-away, replicas) {
					c = patient // an election takes its time on a busy machine
				}
				for _, n := range lost(v, away) {
					must(t, v.Stop(n))
				}
				_, err := c.Do(create("during"))
				if ok := err == nil; ok != serves(replicas-away, replicas) {
					t.Fatalf("with %d of %d replicas away a file is made: %v", away, replicas, err)
				}
				if !serves(replicas-away, replicas) { // what it may answer from memory has expired
					if _, err := hasty.Read("before"); err == nil {
						t.Error("a read was answered without a quorum")
					}
				}
				for n := 1; n <= replicas; n++ {
					if v.Running(n) == nil {
						v.Start(n)
					}
				}
				patient.Write("after", []byte("after"))
				for _, name := range []string{"before", "after"} {
					if got, err := patient.Read(name); err != nil || string(got) != name {
						t.Errorf("%s reads %q, %v", name, got, err)
					}
				}
			})
		}
	}
}

// TestReplicasLost takes away the files of replicas for good. None of them is
// initialised again; a quorum that is left goes on, and less than one does not.
func TestReplicasLost(t *testing.T) {
	for replicas := 1; replicas <= 4; replicas++ {
		for gone := 1; gone <= replicas; gone++ {
			t.Run(fmt.Sprintf("%d of %d", gone, replicas), func(t *testing.T) {
				t.Parallel()
				v := volumetest.New(t, volumetest.Options{Replicas: replicas})
				v.StartAll()
				wait := 2 * time.Second
				if serves(replicas-gone, replicas) {
					wait = time.Minute
				}
				c := v.Client(wait)
				c.Write("before", []byte("before"))
				for _, n := range lost(v, gone) {
					must(t, v.Stop(n))
					must(t, os.RemoveAll(v.ReplicaDir(n)))
					if ended, err := v.Start(n).Ended(); !ended || err == nil {
						t.Errorf("replica %d without its files runs: %v", n, err)
					}
				}
				_, err := c.Do(create("during"))
				if ok := err == nil; ok != serves(replicas-gone, replicas) {
					t.Fatalf("with %d of %d replicas lost a file is made: %v", gone, replicas, err)
				}
				if err == nil {
					if got, err := c.Read("before"); err != nil || string(got) != "before" {
						t.Errorf("reads %q, %v", got, err)
					}
				}
			})
		}
	}
}

// lost chooses replicas, the coordinator first.
func lost(v *volumetest.Volume, count int) []int {
	first := v.Coordinator()
	chosen := []int{first}
	for n := 1; len(chosen) < count; n++ {
		if n != first {
			chosen = append(chosen, n)
		}
	}
	return chosen
}

func create(name string) fsop.Op {
	return &fsop.Create{Parent: fsop.Root, Name: []byte(name), Mode: fsop.TypeFile | 0o644}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

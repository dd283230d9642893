//go:build e2e

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// callWithin is what one kubectl may take; waits are many calls.
	callWithin = 3 * time.Minute
	poll       = 500 * time.Millisecond
	// settle is how long things may take that nobody measures here.
	settle = 5 * time.Minute
	// passWithin is how long a call is tried again whose way to the API server or a kubelet was closed for a moment.
	passWithin = time.Minute
)

// passing are errors that say nothing of the product: a busy machine's API server or kubelet did not get round to it.
var passing = regexp.MustCompile(`TLS handshake timeout|etcdserver: request timed out|i/o timeout|context deadline exceeded|connection reset by peer|` +
	`http2: client connection lost|unexpected EOF|error dialing backend|unable to upgrade connection|the object has been modified`)

// try runs kubectl and returns what it printed.
func try(args ...string) (string, error) { return tryWith("", args...) }

func tryWith(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	cmd := setup.kubectl(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// must is try for what may not fail. It may be done twice.
func must(t *testing.T, args ...string) string {
	t.Helper()
	return mustWith(t, "", args...)
}

func mustWith(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(poll) {
		out, err := tryWith(stdin, args...)
		switch {
		case err == nil:
			return out
		case time.Since(begin) > passWithin || !passing.MatchString(err.Error()):
			t.Fatal(err)
		}
		t.Log(err)
	}
}

func apply(t *testing.T, yaml string) {
	t.Helper()
	mustWith(t, yaml, "apply", "-f", "-")
}

// eventually repeats done until it succeeds.
func eventually(t *testing.T, within time.Duration, what string, done func() error) {
	t.Helper()
	begin := time.Now()
	for {
		err := done()
		if err == nil {
			t.Logf("%s: after %.1f s", what, time.Since(begin).Seconds())
			return
		}
		if time.Since(begin) > within {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		time.Sleep(poll)
	}
}

// get decodes an object.
func get[T any](args ...string) (v T, err error) {
	out, err := try(append([]string{"get", "-o", "json"}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &v)
	}
	return v, err
}

func findNodes(ctx context.Context) error {
	out, err := setup.kubectl(ctx, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").Output()
	if err != nil {
		return err
	}
	setup.nodes = strings.Fields(string(out))
	return nil
}

// namespace makes a namespace for one test, and removes it with all that is in it. Nothing may be left then: a claim that
// does not go away is a failure.
func namespace(t *testing.T, name string) string {
	t.Helper()
	if setup.ran == nil {
		setup.ran = map[string]bool{}
	}
	top, _, _ := strings.Cut(t.Name(), "/")
	setup.ran[top] = true
	apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n")
	t.Cleanup(func() {
		if t.Failed() {
			setup.failed = true
			collect(setup.lab)
		}
		if _, err := try("delete", "namespace", name, "--wait=false"); err != nil {
			t.Error(err)
		}
		begin := time.Now()
		for {
			out, err := try("get", "namespace", name, "--ignore-not-found", "-o", "name")
			if err == nil && out == "" {
				return
			}
			if time.Since(begin) > settle {
				claims, _ := try("-n", name, "get", "pods,pvc", "-o", "wide")
				t.Errorf("namespace %s is still there: %v\n%s", name, err, claims)
				return
			}
			time.Sleep(poll)
		}
	})
	eventually(t, settle, "ServiceAccount", func() error { _, err := try("-n", name, "get", "serviceaccount", "default"); return err })
	return name
}

// inPod runs a command in a Pod's first container.
func inPod(ns, pod string, args ...string) (string, error) {
	return try(append([]string{"-n", ns, "exec", pod, "--"}, args...)...)
}

func mustInPod(t *testing.T, ns, pod string, args ...string) string {
	t.Helper()
	return must(t, append([]string{"-n", ns, "exec", pod, "--"}, args...)...)
}

// ready waits for Pods.
func ready(t *testing.T, ns, selector string, want int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	eventually(t, settle, fmt.Sprintf("%d Pods %s ready", want, selector), func() (err error) {
		pods, err = readyPods(ns, selector)
		if err == nil && len(pods) != want {
			err = fmt.Errorf("%d are: %s", len(pods), whyNot(ns))
		}
		return err
	})
	return pods
}

func readyPods(ns, selector string) ([]corev1.Pod, error) {
	list, err := get[corev1.PodList]("-n", ns, "pods", "-l", selector)
	if err != nil {
		return nil, err
	}
	var ready []corev1.Pod
	for _, p := range list.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
				ready = append(ready, p)
			}
		}
	}
	return ready, nil
}

// whyNot is what the last warnings of a namespace say.
func whyNot(ns string) string {
	out, err := try("-n", ns, "get", "events", "--field-selector", "type=Warning", "--sort-by", ".lastTimestamp",
		"-o", `jsonpath={range .items[*]}{.involvedObject.name}: {.message}{"\n"}{end}`)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(out, "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// volumeIfThere is the same as volumeOf, and empty while the claim is not bound.
func volumeIfThere(ns, claim string) string {
	out, _ := try("-n", ns, "get", "pvc", claim, "--ignore-not-found", "-o", "jsonpath={.spec.volumeName}")
	return out
}

// volumeOf is the name of the volume that a claim is bound to: its handle and its ReplicatedVolume's name.
func volumeOf(t *testing.T, ns, claim string) string {
	t.Helper()
	var volume string
	eventually(t, settle, "claim "+claim+" bound", func() error {
		out, err := try("-n", ns, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName} {.status.phase}")
		if err != nil {
			return err
		}
		name, phase, _ := strings.Cut(out, " ")
		if volume = name; phase != "Bound" {
			return errors.New(phase + ": " + whyNot(ns))
		}
		return nil
	})
	return volume
}

package manager

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// TestWorkerPodsGoOneByOne replaces the Pods that may begin a replica afresh, each when all others are ready: of two at a time that are
// away the volume would have no quorum.
func TestWorkerPodsGoOneByOne(t *testing.T) {
	const first, second = "pvc-u-r1", "pvc-u-r2"
	begins := map[string]string{api.LabelBootstrap: "true"}
	for name, c := range map[string]struct {
		change func(pods map[string]kube.Pod)
		steps  string
	}{
		"both are ready":             {func(map[string]kube.Pod) {}, "replace pod " + first},
		"one is not ready":           {func(p map[string]kube.Pod) { p[second] = kube.Pod{Name: second, Labels: begins} }, ""},
		"one is not there":           {func(p map[string]kube.Pod) { delete(p, first) }, "create pod " + first},
		"one is being deleted":       {func(p map[string]kube.Pod) { p[first] = kube.Pod{Name: first, Ready: true, Deleting: true} }, ""},
		"its successor is not ready": {func(p map[string]kube.Pod) { p[first] = kube.Pod{Name: first} }, ""},
		"its successor is ready":     {func(p map[string]kube.Pod) { p[first] = kube.Pod{Name: first, Ready: true} }, "replace pod " + second},
		"one has failed":             {func(p map[string]kube.Pod) { p[second] = kube.Pod{Name: second, Phase: "Failed"} }, "replace pod " + second},
		"both have been replaced": {func(p map[string]kube.Pod) {
			p[first], p[second] = kube.Pod{Name: first, Ready: true}, kube.Pod{Name: second, Ready: true}
		}, ""},
	} {
		o := whole(t)
		o.v.Spec.Runtime, o.v.Status.Runtime = api.RuntimePod, api.RuntimePod
		o.pods = map[string]kube.Pod{first: {Name: first, Ready: true, Labels: begins}, second: {Name: second, Ready: true, Labels: begins}}
		c.change(o.pods)
		var steps []string
		for _, s := range decide(o, testSettings).steps {
			if strings.Contains(s.name, " pod ") {
				steps = append(steps, s.name)
			}
		}
		if got := strings.Join(steps, "; "); got != c.steps {
			t.Errorf("%s: steps %q, want %q", name, got, c.steps)
		}
	}
}

// TestWorkerPodArguments has the worker's own flags parse what the manager gives its Pod.
func TestWorkerPodArguments(t *testing.T) {
	o := whole(t)
	for _, bootstrap := range []bool{false, true} {
		pod := workerPod(o.v, &o.v.Spec.Replicas[1], testSettings, bootstrap)
		ran := false
		c := worker.Command()
		c.Action = func(context.Context, *cli.Command) error { ran = true; return nil }
		var errOut strings.Builder
		if code := boot.Main(t.Context(), []*cli.Command{c}, append([]string{boot.Name}, pod.Args...), io.Discard, &errOut); code != 0 || !ran {
			t.Errorf("%q: exit code %d, ran %v: %s", pod.Args, code, ran, errOut.String())
		}
		if slices.Contains(pod.Args, "--bootstrap") != bootstrap {
			t.Errorf("%q may begin afresh, wanted is %v", pod.Args, bootstrap)
		}
	}
}

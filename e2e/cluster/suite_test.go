//go:build e2e

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/install"
	"tak-os.org/tak-replicated/e2e/cluster/programs"
)

var conformanceUpdate = flag.Bool("conformance.update", false, "write the list of what the storage suite skips")

// leftOut are tests that are not run at all, by what their names have, and why.
var leftOut = map[string]string{
	"[Disruptive]":           "left out: it needs ssh to the nodes, to stop the kubelet or to cut their power; e2e/cluster does that to its own",
	"any volume data source": "left out: it installs a volume populator, a controller of its own, and the driver fills no volume from a source",
}

// reasonLeftOut is why a test is not run.
func reasonLeftOut(name string) string {
	for part, why := range leftOut {
		if strings.Contains(name, part) {
			return why
		}
	}
	return ""
}

// notOurs is leftOut as the suite's filter.
func notOurs() string {
	var parts []string
	for part := range leftOut {
		parts = append(parts, regexp.QuoteMeta(part))
	}
	slices.Sort(parts)
	return strings.Join(parts, "|")
}

const (
	// suiteWithin bounds one part of one run of the suite.
	suiteWithin = 40 * time.Minute
	// suiteTakes is about how long all of it takes on two cores, with the scenarios that come behind it: it is one
	// of the last, by its file's name, and runs if there is so much time left.
	suiteTakes = 32 * time.Minute
)

// parts are run at the same time: most of the suite's time is waiting for Pods. Each is a focus, and what of it is another's.
var parts = []struct{ focus, other string }{
	{`External.Storage.*\[Testpattern:.*subPath`, ""},
	{`External.Storage`, `\[Testpattern:.*subPath`},
}

// TestStorageSuite runs the Kubernetes project's own storage tests for external drivers against what we claim: volumes of one
// node, and of many. Nothing may fail, and what is skipped or left out is what conformance/skipped-KIND.txt lists, each with the reason.
func TestStorageSuite(t *testing.T) {
	if setup.lab == nil {
		t.Skip("the suite's images are loaded into nodes of our own cluster only")
	}
	if end, ok := t.Deadline(); ok && time.Until(end) < suiteTakes {
		t.Skipf("-timeout leaves %s, and %s are needed on two cores: run it alone (-run TestStorageSuite), or all with -timeout 120m",
			time.Until(end).Round(time.Minute), suiteTakes)
	}
	suite, err := programs.Path(t.Context(), programs.StorageSuite, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	archives, err := install.SuiteImages(t.Context(), t.TempDir(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range archives {
		if err := setup.lab.Load(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"once", "many"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			j := judgement{told: map[string]string{}, ended: map[string]bool{}}
			var all sync.WaitGroup
			reports, errs := make([]string, len(parts)), make([]error, len(parts))
			for i, part := range parts {
				out := t.TempDir()
				reports[i] = filepath.Join(out, "report.json")
				all.Go(func() {
					errs[i] = runSuite(t, suite, out, "-storage.testdriver", filepath.Join("conformance", kind+".yaml"), "-ginkgo.json-report", reports[i],
						"-ginkgo.focus", part.focus, "-ginkgo.skip", strings.Trim(notOurs()+"|"+part.other, "|"))
				})
			}
			all.Wait()
			for i := range parts {
				j.read(t, reports[i], errs[i])
			}
			j.compare(t, filepath.Join("conformance", "skipped-"+kind+".txt"))
		})
	}
}

// runSuite runs one part, and puts report and log into out.
func runSuite(t *testing.T, suite, out string, args ...string) error {
	kubectl := filepath.Join(out, "kubectl")
	script := fmt.Sprintf("#!/bin/sh\nexec %s kubectl \"$@\"\n", setup.lab.Program("kube"))
	if err := os.WriteFile(kubectl, []byte(script), 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(out, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), suiteWithin)
	defer cancel()
	cmd := setup.lab.InHub(ctx, append([]string{suite, "-kubeconfig", setup.lab.Kubeconfig(), "-kubectl-path", kubectl,
		"-provider", "local", "-num-nodes", fmt.Sprint(len(setup.nodes)),
		"-ginkgo.seed", "1",
		"-ginkgo.v", "-ginkgo.no-color", "-ginkgo.timeout", suiteWithin.String()}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}

// spec is what is read of ginkgo's report.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// ours reports whether it is one of the tests of external drivers. The suite has many more, of other things.
func (s spec) ours() bool { return strings.HasPrefix(s.name(), "External Storage") }

// judgement is what all parts of a run say.
type judgement struct {
	ended  map[string]bool   // every test by its name: whether a part has run or skipped it
	told   map[string]string // why tests were skipped
	passed int
}

// read takes in what a part has reported.
func (j *judgement) read(t *testing.T, report string, runErr error) {
	t.Helper()
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(errors.Join(runErr, err, tail(filepath.Join(filepath.Dir(report), "log"))))
	}
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(b, &suites); err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		for _, r := range s.SpecReports {
			j.take(t, r)
		}
	}
	if runErr != nil {
		t.Error(runErr)
	}
}

func (j *judgement) take(t *testing.T, r spec) {
	t.Helper()
	name := r.name()
	switch {
	case r.LeafNodeText == "": // before and after the suite
		return
	case r.State == "skipped":
		if !r.ours() {
			return
		}
		why := cmp.Or(r.Failure.Message, reasonLeftOut(name)) // neither: another part's
		if why != "" {
			j.told[name] = why
		}
		j.ended[name] = j.ended[name] || why != ""
		return
	case r.State == "passed":
		j.passed++
		t.Logf("passed in %3.0f s: %s", r.RunTime.Seconds(), name)
	default:
		t.Errorf("%s: %s: %s", r.State, name, r.Failure.Message)
	}
	j.ended[name] = true
}

// compare holds what was skipped to the golden list, and every test to have been some part's.
func (j *judgement) compare(t *testing.T, golden string) {
	t.Helper()
	t.Logf("%d passed, %d skipped", j.passed, len(j.told))
	if j.passed < 20 {
		t.Errorf("only %d passed", j.passed)
	}
	for name, ended := range j.ended {
		if !ended {
			t.Errorf("no part has run %s", name)
		}
	}
	lines := make([]string, 0, len(j.told))
	for name, why := range j.told {
		lines = append(lines, name+": "+why)
	}
	slices.Sort(lines)
	compareSkipped(t, golden, strings.Join(lines, "\n")+"\n")
}

func compareSkipped(t *testing.T, golden, got string) {
	if *conformanceUpdate {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("skipped is something else than %s says; if that is right, run with -conformance.update\n%s", golden, got)
	}
}

// tail is a log's end as an error.
func tail(file string) error {
	out, err := exec.Command("tail", "-n", "30", file).Output()
	return errors.Join(err, errors.New(string(out)))
}

//go:build e2e

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/install"
	"tak-os.org/tak-replicated/e2e/cluster/programs"
)

var conformanceUpdate = flag.Bool("conformance.update", false, "write the list of what the storage suite skips")

// notOurs are tests that need ssh to the nodes (this package's own scenarios do what they do), and one of a volume populator,
// which needs a controller of its own.
const notOurs = `\[Disruptive\]|any volume data source`

// suiteWithin bounds one run of the suite.
const suiteWithin = 60 * time.Minute

// TestStorageSuite runs the Kubernetes project's own storage tests for external drivers against what we claim: volumes of one
// node, and of many. Nothing may fail, and what is skipped is what conformance/skipped.txt lists.
func TestStorageSuite(t *testing.T) {
	if setup.lab == nil {
		t.Skip("the suite's images are loaded into nodes of our own cluster only")
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
			out := t.TempDir()
			report := filepath.Join(out, "report.json")
			runErr := runSuite(t, suite, out, "-storage.testdriver", filepath.Join("conformance", kind+".yaml"), "-ginkgo.json-report", report)
			judge(t, kind, report, runErr)
		})
	}
}

func runSuite(t *testing.T, suite, out string, args ...string) error {
	kubectl := filepath.Join(out, "kubectl")
	script := fmt.Sprintf("#!/bin/sh\nexec %s kubectl \"$@\"\n", setup.lab.Program("kube"))
	if err := os.WriteFile(kubectl, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(out, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), suiteWithin)
	defer cancel()
	cmd := setup.lab.InHub(ctx, append([]string{suite, "-kubeconfig", setup.lab.Kubeconfig(), "-kubectl-path", kubectl,
		"-provider", "local", "-num-nodes", fmt.Sprint(len(setup.nodes)),
		"-ginkgo.focus", "External.Storage", "-ginkgo.skip", notOurs, "-ginkgo.seed", "1",
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

func judge(t *testing.T, kind, report string, runErr error) {
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(errors.Join(runErr, err, tail(filepath.Join(filepath.Dir(report), "log"))))
	}
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(b, &suites); err != nil {
		t.Fatal(err)
	}
	passed, skipped := 0, []string{}
	for _, s := range suites {
		for _, r := range s.SpecReports {
			switch {
			case r.LeafNodeText == "": // before and after the suite
			case r.State == "passed":
				passed++
				t.Logf("passed in %3.0f s: %s", r.RunTime.Seconds(), r.name())
			case r.State == "skipped":
				if r.Failure.Message != "" { // others were filtered away
					skipped = append(skipped, r.name()+": "+r.Failure.Message)
				}
			default:
				t.Errorf("%s: %s: %s", r.State, r.name(), r.Failure.Message)
			}
		}
	}
	if runErr != nil {
		t.Error(runErr)
	}
	t.Logf("%d passed, %d skipped", passed, len(skipped))
	if passed < 20 {
		t.Errorf("only %d passed", passed)
	}
	slices.Sort(skipped)
	compareSkipped(t, filepath.Join("conformance", "skipped-"+kind+".txt"), strings.Join(skipped, "\n")+"\n")
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

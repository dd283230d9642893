// Package sanitytest runs csi-sanity in a driver's test, and holds what it leaves
// out to what the driver does not claim.
package sanitytest

import (
	"slices"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

// Suite is what to run. A test program runs one.
type Suite struct {
	Config sanity.TestConfig
	// NotOurs are expressions for the names of specifications of services that the
	// driver does not have at all.
	NotOurs []string
	// Unclaimed are the words with which csi-sanity itself leaves a specification out
	// because the driver does not claim a capability. Each has to occur, and no other may.
	Unclaimed []string
	// AtLeast is how many specifications have to have passed.
	AtLeast int
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	t.Helper()
	gomega.RegisterFailHandler(ginkgo.Fail)
	context := sanity.GinkgoTest(&s.Config)
	var report ginkgo.Report
	ginkgo.ReportAfterSuite("what was left out", func(r ginkgo.Report) { report = r })
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.SkipStrings = append(suite.SkipStrings, s.NotOurs...)
	suite.RandomizeAllSpecs = true
	reporter.Succinct, reporter.NoColor = !testing.Verbose(), true
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
	context.Finalize()
	s.check(t, report)
}

// check compares what was left out with what may be.
func (s *Suite) check(t *testing.T, r ginkgo.Report) {
	t.Helper()
	passed := 0
	said := map[string]int{}
	for _, spec := range r.SpecReports {
		switch {
		case spec.LeafNodeType != types.NodeTypeIt:
		case spec.State == types.SpecStatePassed:
			passed++
		case spec.State == types.SpecStateSkipped && spec.Failure.Message != "":
			said[spec.Failure.Message]++
			if !slices.Contains(s.Unclaimed, spec.Failure.Message) {
				t.Errorf("left out although nothing says that it may be: %s: %s", spec.FullText(), spec.Failure.Message)
			}
		}
	}
	for _, words := range s.Unclaimed {
		if said[words] == 0 {
			t.Errorf("nothing was left out because of %q any more", words)
		}
	}
	t.Logf("csi-sanity: %d specifications passed; left out: %v", passed, said)
	if passed < s.AtLeast {
		t.Errorf("%d specifications passed, fewer than %d", passed, s.AtLeast)
	}
}

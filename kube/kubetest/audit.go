package kubetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// auditPolicy has the server note what service accounts ask for, and what they are answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts"], omitManagedFields: true}
  - {level: None}
`

const auditLog = "audit.log"

// auditArgs are the server's arguments for its audit log.
func (s *Server) auditArgs() ([]string, error) {
	policy := filepath.Join(s.dir, "audit.yaml")
	err := os.WriteFile(policy, []byte(auditPolicy), 0o600)
	return []string{"--audit-policy-file", policy, "--audit-log-path", filepath.Join(s.dir, auditLog), "--audit-log-maxsize", "1000"}, err
}

// Asked is one thing that an account of the driver's namespace asked for.
type Asked struct{ Account, Verb, Group, Resource, Namespace string }

// Right is what was asked for: VERB GROUP/RESOURCE, and " in NAMESPACE" if it was in one.
func (a Asked) Right() string {
	where := ""
	if a.Namespace != "" {
		where = " in " + a.Namespace
	}
	return fmt.Sprintf("%s %s/%s%s", a.Verb, a.Group, a.Resource, where)
}

func (a Asked) String() string { return a.Account + " " + a.Right() }

// auditEvent is what of an event of an API server's audit log matters here.
type auditEvent struct {
	Stage, Verb              string
	RequestReceivedTimestamp time.Time
	User                     struct{ Username string }
	ObjectRef                *struct{ Resource, Subresource, APIGroup, Namespace, Name string }
	ResponseStatus           *struct{ Code int }
	Annotations              map[string]string
}

// unauthorised says that the account has no such right. That a namespace is being deleted is refused, too, and is no matter of rights.
func (e *auditEvent) unauthorised() bool {
	return e.ResponseStatus != nil && e.ResponseStatus.Code == 403 && e.Annotations["authorization.k8s.io/decision"] != "allow"
}

const accountPrefix = "system:serviceaccount:kube-system:"

// Audit reads an audit log: how often the product's accounts asked for what they were given, and for what they were refused.
// What came after until is left out, unless that is zero.
func Audit(file string, until time.Time) (given, refused map[Asked]int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	given, refused = map[Asked]int{}, map[Asked]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line may be under way
		}
		account, ours := strings.CutPrefix(e.User.Username, accountPrefix+"tak-")
		if !ours || e.ObjectRef == nil || !until.IsZero() && e.RequestReceivedTimestamp.After(until) {
			continue
		}
		a := Asked{"tak-" + account, e.Verb, e.ObjectRef.APIGroup, e.ObjectRef.Resource, e.ObjectRef.Namespace}
		if e.ObjectRef.Subresource != "" {
			a.Resource += "/" + e.ObjectRef.Subresource
		}
		if e.unauthorised() {
			refused[a]++
		} else {
			given[a]++
		}
	}
	return given, refused, lines.Err()
}

// Uses fails the test unless the audit log shows that an account used rights: of some namespace, or of any if it is not named.
func (s *Server) Uses(t testing.TB, account string, rights ...string) {
	t.Helper()
	Eventually(t, 10*time.Second, fmt.Sprintf("the audit log has %s use %q", account, rights), func() bool {
		given, _, err := Audit(filepath.Join(s.dir, auditLog), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(rights, func(right string) bool {
			for a := range given {
				anywhere := a
				anywhere.Namespace = ""
				if a.Account == account && (a.Right() == right || anywhere.Right() == right) {
					return false
				}
			}
			return true
		})
	})
}

package mountowner

import (
	"encoding/json"
	"strings"
	"testing"
)

func sampleStage() StageRequest {
	q := StageRequest{Spec: validSpec(), Credentials: Credentials{}}
	for _, name := range credentialNames {
		q.Credentials[name] = []byte(name)
	}
	q.Owner = "node-1"
	return q
}

// TestParseStage refuses requests whose credentials would go astray.
func TestParseStage(t *testing.T) {
	text, err := json.Marshal(sampleStage())
	must(t, err)
	q, err := parseStage(text)
	if err != nil || q.Volume != "v" || q.Owner != "node-1" || string(q.Credentials["token"]) != "token" {
		t.Errorf("read %+v, %v", q, err)
	}
	for name, spoil := range map[string]func(*StageRequest){
		"no token": func(q *StageRequest) { delete(q.Credentials, "token") },
		"slash":    func(q *StageRequest) { q.Volume = "../v" },
		"parent":   func(q *StageRequest) { q.Volume = ".." },
	} {
		q := sampleStage()
		spoil(&q)
		text, err := json.Marshal(q)
		must(t, err)
		if _, err := parseStage(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzParseStage(f *testing.F) {
	text, err := json.Marshal(sampleStage())
	must(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseStage(b)
		if err == nil && (strings.Contains(q.Volume, "/") || len(q.Credentials["client.key"]) == 0) {
			t.Errorf("accepted %+v", q)
		}
	})
}

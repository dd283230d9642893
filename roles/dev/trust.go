package dev

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// loopback is the name that every replica's server certificate has here.
const loopback = "127.0.0.1"

// renewEvery is how often credentials are looked at; they are renewed at half
// of their life, of which the shortest is a day.
const renewEvery = time.Hour

// trust issues the credentials of everybody in DIR.
type trust struct {
	dir      string
	volume   string
	replicas int
	now      func() time.Time
	log      *zap.Logger
}

func (t *trust) folder(name string) string { return filepath.Join(t.dir, "trust", name) }

// renew makes what is missing and replaces what is past half of its life.
func (t *trust) renew() error {
	ca, err := t.open("ca").EnsureCA(t.volume)
	if err != nil {
		return fmt.Errorf("trust: %w", err)
	}
	for n := 1; n <= t.replicas; n++ {
		name := replicaName(n)
		holders := []pki.Holder{
			{Role: pki.RoleServer, Name: name, Hosts: []string{loopback}},
			{Role: pki.RolePeer, Name: name},
		}
		for _, h := range holders {
			if _, err := t.open(name).Renew(ca, h); err != nil {
				return fmt.Errorf("trust: %w", err)
			}
		}
	}
	if _, err := t.open("client").Renew(ca, pki.Holder{Role: pki.RoleClient, Name: "dev", Token: true}); err != nil {
		return fmt.Errorf("trust: %w", err)
	}
	if _, err := t.open("operator").Renew(ca, pki.Holder{Role: pki.RoleOperator, Name: "ctl", Token: true}); err != nil {
		return fmt.Errorf("trust: %w", err)
	}
	return nil
}

func (t *trust) open(name string) *pki.Dir { return pki.OpenDir(pki.OSFiles(t.folder(name)), t.now) }

// run keeps the credentials fresh.
func (t *trust) run(ctx context.Context) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := t.renew(); err != nil {
				t.log.Error("renew credentials", zap.Error(err))
			}
		}
	}
}

func replicaName(n int) string { return fmt.Sprintf("replica-%d", n) }

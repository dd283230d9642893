package mountowner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/csi/names"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
)

// StageRequest asks for a volume's mount at a path of the kubelet's, with the
// credentials for it.
type StageRequest struct {
	Spec
	Credentials Credentials `json:"credentials"`
}

// Credentials are files of a volume's client, by name.
type Credentials map[string][]byte

// credentialNames are the files that a client's credentials consist of.
var credentialNames = []string{"ca.crt", "client.crt", "client.key", "token"}

func (c Credentials) validate() error {
	for _, name := range credentialNames {
		if len(c[name]) == 0 {
			return boot.Usagef("credentials without %s", name)
		}
	}
	return nil
}

// requestBytesMost bounds a request with credentials.
const requestBytesMost = 256 << 10

func parseStage(b []byte) (StageRequest, error) {
	var q StageRequest
	if len(b) > requestBytesMost {
		return q, fmt.Errorf("stage request of more than %d bytes", requestBytesMost)
	}
	if err := json.Unmarshal(b, &q); err != nil {
		return q, fmt.Errorf("stage request: %w", err)
	}
	if !names.Subdomain(q.Volume) {
		return q, fmt.Errorf("stage request: %.200q is no volume's name", q.Volume)
	}
	return q, q.Credentials.validate()
}

// trustOf is where a volume's credentials are kept for the serving process and
// the next ones.
func (o *Owner) trustOf(volume string) string { return filepath.Join(o.places.Trust, volume) }

// Refresh replaces a volume's credentials. Its session reads them by itself.
func (o *Owner) Refresh(volume string, c Credentials) error {
	if err := c.validate(); err != nil {
		return err
	}
	files := pki.OSFiles(o.trustOf(volume))
	for _, name := range credentialNames {
		if have, err := files.Read(name); err == nil && slices.Equal(have, c[name]) {
			continue
		}
		if err := files.Write(name, c[name]); err != nil {
			return fmt.Errorf("keep credentials: %w", err)
		}
	}
	return nil
}

// Stage mounts a volume and returns when it serves. It can be repeated, also after
// a crash of anybody: a mount that is there and serves is left alone, a dead one is
// replaced. The error is ErrConflict for another mount, *client.OwnedError when
// another node owns the volume.
func (o *Owner) Stage(ctx context.Context, q StageRequest) (*Status, error) {
	t, err := o.open(q.Mountpoint)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	unlock, err := o.busy.Lock(ctx, q.Mountpoint)
	if err != nil {
		return nil, err
	}
	defer unlock()
	q.Trust = o.trustOf(q.Volume)
	if err := q.validate(); err != nil {
		return nil, err
	}
	if err := o.clear(ctx, t, q.Spec); err != nil {
		return nil, err
	}
	if err := o.Refresh(q.Volume, q.Credentials); err != nil {
		return nil, err
	}
	if m := o.mounted(q.Mountpoint); m != nil {
		q.Spec = m.spec
	}
	if err := guard(t); err != nil {
		return nil, err
	}
	st, err := o.mountAt(ctx, q.Spec, t)
	if err == nil {
		st.Replaced = o.replaced(q.Mountpoint)
	}
	return st, err
}

// sameVolume reports whether a mount is what is asked for. A replica that was
// replaced has another member id at the same address: the session finds it.
func (s *Spec) sameVolume(o *Spec) bool {
	return s.Volume == o.Volume && s.Owner == o.Owner && s.ReadOnly == o.ReadOnly
}

// clear takes away what is left of a mount that does not serve any more.
func (o *Owner) clear(ctx context.Context, t *mounts.Target, spec Spec) error {
	m := o.mounted(spec.Mountpoint)
	top, err := topOf(spec.Mountpoint)
	if err != nil {
		return err
	}
	switch {
	case m != nil && top.kind == ours && m.alive() && m.spec.sameVolume(&spec):
		return nil
	case m != nil && top.kind == ours && m.alive():
		return fmt.Errorf("%s: %w", spec.Mountpoint, ErrConflict)
	case m != nil:
		// Over, or unmounted by somebody while others still use it.
		if err := o.endMount(ctx, m); err != nil {
			return err
		}
		if m.served() {
			o.noteReplaced(spec.Mountpoint)
		}
	}
	taken, err := o.takeDead(t, spec.Volume)
	if taken {
		o.noteReplaced(spec.Mountpoint)
	}
	return err
}

// noteReplaced remembers, until a mount in its place serves, that users have lost one.
func (o *Owner) noteReplaced(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.replaced[path] = true
}

// replaced reports that once, and forgets it.
func (o *Owner) replaced(path string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.mu.replaced[path]
	delete(o.mu.replaced, path)
	return was
}

// served reports whether the mount has ever had users.
func (m *mount) served() bool {
	select {
	case <-m.up:
		return true
	default:
	}
	k := m.kernel.Load()
	return k != nil && k.Resumed()
}

// alive reports whether the mount's session may still answer.
func (m *mount) alive() bool {
	select {
	case <-m.ended:
		return false
	default:
	}
	s := m.session.Load()
	return s == nil || s.Over() == nil
}

// endMount ends a mount by force and waits for it.
func (o *Owner) endMount(ctx context.Context, m *mount) error {
	m.cancel()
	select {
	case <-m.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// takeDead takes mounts of a volume away that no process serves: their users get
// ENOTCONN, as they do already. It is not for those that are served. taken says that there was one.
func (o *Owner) takeDead(t *mounts.Target, volume string) (taken bool, err error) {
	path := t.Path
	for {
		top, err := topOf(path)
		if err != nil {
			return taken, err
		}
		switch {
		case top.kind == nothing, top.kind == guarding:
			return taken, nil
		case top.kind == foreign:
			return taken, fmt.Errorf("%s: %w: of type %s", path, ErrConflict, top.Type)
		case o.serves(top.Device):
			return taken, fmt.Errorf("%s: %w: volume %s is published there", path, ErrConflict, top.volume())
		case !top.of(volume):
			return taken, fmt.Errorf("%s: %w: volume %s was there", path, ErrConflict, top.volume())
		}
		if err := (at{t}).detach(); err != nil {
			return taken, err
		}
		taken = true
	}
}

// Unstage ends a volume's mount. What is not mounted is fine. The error is a
// *BusyError while the mount is in use, or published, and ErrConflict when another
// volume is there, or this one but published.
func (o *Owner) Unstage(ctx context.Context, volume, path string) error {
	t, err := o.open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Close()
	unlock, err := o.busy.Lock(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	if m := o.mounted(path); m != nil {
		if m.spec.Volume != volume {
			return fmt.Errorf("%s: %w: volume %s is staged there", path, ErrConflict, m.spec.Volume)
		}
		if err := o.unmountStaged(ctx, m, t); err != nil {
			return err
		}
	}
	if _, err := o.takeDead(t, volume); err != nil {
		return err
	}
	o.replaced(path) // nobody is told any more
	return unguard(t)
}

func (o *Owner) unmountStaged(ctx context.Context, m *mount, t *mounts.Target) error {
	top, err := topOf(t.Path)
	if err != nil {
		return err
	}
	if top.kind == ours {
		published, err := elsewhere(top.Mount)
		if err != nil {
			return err
		}
		if len(published) > 0 {
			return &BusyError{Mountpoint: t.Path, Holders: []Holder{{Command: "published at " + published[0]}}}
		}
	}
	// A session that is over, or that has no coordinator to answer for it, is not
	// waited for: its users get ENOTCONN.
	err = o.unmountAt(ctx, t.Path, at{t}, !m.answers(ctx))
	volume := m.spec.Volume
	if err != nil && !errors.Is(err, ErrNotMounted) {
		return err
	}
	o.dropTrust(volume)
	return nil
}

// dropTrust forgets the credentials of a volume without a mount.
func (o *Owner) dropTrust(volume string) {
	for _, st := range o.Mounts() {
		if st.Volume == volume {
			return
		}
	}
	if err := os.RemoveAll(o.trustOf(volume)); err != nil {
		o.log.Warn("forget credentials", zap.String("volume", volume), zap.Error(err))
	}
}

func (o *Owner) mounted(path string) *mount {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.mounts[path]
}

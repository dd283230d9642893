package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/worker"
)

// Replacing a replica (C10), in steps that a dev which is started again takes up
// where they were left:
//
//  1. settings.json names the replacement: the new member id and incarnation.
//  2. The old worker ends; with Force the survivor becomes the only member.
//  3. A worker of the new incarnation starts in a folder of its own, and waits
//     to be let in.
//  4. The coordinator lets it in as a learner, sends a checkpoint, and makes it
//     a voter in the one change that removes and bars the old member.
//  5. settings.json has the new member; the old one's folder is destroyed.
//
// The request comes over a Unix socket in DIR/run, as HTTP: POST /v1/replace
// with a ReplaceRequest, answered when it is done.

// ReplaceRequest names the replica to replace, and which life of it.
type ReplaceRequest struct {
	Replica     string `json:"replica"`
	Incarnation uint64 `json:"incarnation"`
	// Force gives up the quorum: one survivor goes on alone with what it has, and
	// every other member is barred.
	Force bool `json:"force"`
}

// ReplaceSocket is where a dev in dir takes requests.
func ReplaceSocket(dir string) string { return (&Config{Dir: dir}).socketNamed("dev.sock") }

const (
	pathReplace  = "/v1/replace"
	requestMost  = 64 << 10
	replaceRetry = 200 * time.Millisecond
)

// replacement is one that is under way, as settings.json has it.
type replacement struct {
	Replica string `json:"replica"`
	Old     seat   `json:"old"`
	New     seat   `json:"new"`
	// Survivor is the replica that a forced one leaves, with its new seat.
	Survivor    string `json:"survivor,omitempty"`
	SurvivorNew seat   `json:"survivorNew"`
	Forced      bool   `json:"forced"` // the survivor is alone by now
}

// seat is a replica's place among the members.
type seat struct {
	Member      uint64 `json:"member"`
	Incarnation uint64 `json:"incarnation"`
	Folder      string `json:"folder"` // in DIR
}

// serveReplace takes requests until ctx ends.
func (s *system) serveReplace(ctx context.Context) error {
	l, err := mountowner.ListenUnix(ReplaceSocket(s.cfg.Dir))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathReplace, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, requestMost))
		var req ReplaceRequest
		if err == nil {
			req, err = parseReplaceRequest(body)
		}
		if err == nil {
			err = s.replace(r.Context(), req)
		}
		if err != nil {
			http.Error(w, boot.OneLine(err), http.StatusConflict)
		}
	})
	if err := boot.ServeHTTP(ctx, l, mux); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func parseReplaceRequest(text []byte) (ReplaceRequest, error) {
	var req ReplaceRequest
	if err := json.Unmarshal(text, &req); err != nil {
		return req, fmt.Errorf("request: %w", err)
	}
	if req.Replica == "" || req.Incarnation == 0 {
		return req, errors.New("request: replica and incarnation are needed")
	}
	return req, nil
}

// AskReplace asks the dev in dir to replace a replica, and waits until it has.
func AskReplace(ctx context.Context, dir string, req ReplaceRequest) error {
	text, err := json.Marshal(req)
	if err != nil {
		return err
	}
	socket := ReplaceSocket(dir)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://dev"+pathReplace, bytes.NewReader(text))
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("ask the dev in %s: %w", dir, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	why, err := io.ReadAll(io.LimitReader(answer.Body, requestMost))
	return errors.Join(errors.New(boot.OneLine(errors.New(string(why)))), err)
}

// replace carries a request out.
func (s *system) replace(ctx context.Context, req ReplaceRequest) error {
	s.replacing.Lock()
	defer s.replacing.Unlock()
	if s.settings.Replacing == nil {
		r, err := s.plan(ctx, req)
		if err != nil {
			return err
		}
		s.settings.Replacing = r
		if err := s.settings.save(s.cfg.Dir); err != nil {
			return err
		}
	}
	if r := s.settings.Replacing; r.Replica != req.Replica || r.Old.Incarnation != req.Incarnation {
		return fmt.Errorf("%s of incarnation %d is being replaced", r.Replica, r.Old.Incarnation)
	}
	return s.proceed(ctx)
}

// plan checks a request and chooses ids.
func (s *system) plan(ctx context.Context, req ReplaceRequest) (*replacement, error) {
	n := s.settings.number(req.Replica)
	if n == 0 {
		return nil, fmt.Errorf("there is no replica %s", req.Replica)
	}
	old := s.settings.Seats[n-1]
	if old.Incarnation != req.Incarnation {
		return nil, fmt.Errorf("%s is of incarnation %d, not %d", req.Replica, old.Incarnation, req.Incarnation)
	}
	next := s.settings.lastMember() + 1
	r := &replacement{Replica: req.Replica, Old: old, New: seat{next, old.Incarnation + 1, fmt.Sprintf("%s.%d", req.Replica, old.Incarnation+1)}}
	if !req.Force {
		if err := s.coordinated(ctx); err != nil {
			return nil, fmt.Errorf("%w: a quorum of the members is needed; with --force the survivor of two goes on alone, and what only the other had is lost", err)
		}
		return r, nil
	}
	if s.settings.Replicas != 2 {
		return nil, fmt.Errorf("--force is for a volume of two replicas that has lost one, this one has %d", s.settings.Replicas)
	}
	if s.coordinated(ctx) == nil {
		return nil, errors.New("the volume has a quorum: replace without --force")
	}
	other := s.settings.Seats[2-n]
	r.Survivor, r.SurvivorNew = replicaName(3-n), seat{next, other.Incarnation + 1, other.Folder}
	r.New.Member++
	return r, nil
}

// coordinated reports why there is no coordinator.
func (s *system) coordinated(ctx context.Context) error {
	creds, err := s.operator()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		for _, p := range s.plans {
			rep, err := worker.Ask(ctx, p.addr, creds.ClientTLS(loopback))
			if err == nil && rep.Role == "coordinator" {
				return nil
			}
		}
		if !sleep(ctx, replaceRetry) {
			return errors.New("there is no coordinator")
		}
	}
}

func (s *system) operator() (*pki.Credentials, error) {
	dir := pki.OpenDir(pki.OSFiles(s.trust.folder("operator")), time.Now)
	return pki.NewCredentials(dir.Load(pki.RoleOperator), time.Now, s.log)
}

// proceed goes on with the replacement that settings.json names.
func (s *system) proceed(ctx context.Context) error {
	r := s.settings.Replacing
	s.stopWorker(r.Replica)
	if r.Survivor != "" && !r.Forced {
		if err := s.force(ctx, r); err != nil {
			return err
		}
	}
	n := s.settings.number(r.Replica)
	s.startWorker(n, r.New, true)
	if err := s.letIn(ctx, r); err != nil {
		return err
	}
	s.sit(n, r.New)
	s.settings.Replacing = nil
	s.settings.Retired = append(s.settings.Retired, r.Old.Folder)
	if err := s.settings.save(s.cfg.Dir); err != nil {
		return err
	}
	s.log.Info("replica replaced", zap.String("replica", r.Replica), zap.Uint64("incarnation", r.New.Incarnation))
	return s.destroyRetired()
}

// force makes the survivor the only member.
func (s *system) force(ctx context.Context, r *replacement) error {
	n := s.settings.number(r.Survivor)
	s.stopWorker(r.Survivor)
	cfg := s.workerConfig(n, s.settings.Seats[n-1], false)
	if err := worker.Force(ctx, cfg, r.SurvivorNew.Incarnation, r.SurvivorNew.Member, s.log); err != nil {
		return err
	}
	s.sit(n, r.SurvivorNew)
	r.Forced = true
	if err := s.settings.save(s.cfg.Dir); err != nil {
		return err
	}
	s.startWorker(n, r.SurvivorNew, false)
	return nil
}

func (s *system) sit(n int, t seat) {
	s.seating.Lock()
	defer s.seating.Unlock()
	s.settings.Seats[n-1] = t
}

// letIn asks the coordinator until the new member has taken the old one's place.
func (s *system) letIn(ctx context.Context, r *replacement) error {
	creds, err := s.operator()
	if err != nil {
		return err
	}
	want := worker.Replacement{
		Remove: worker.Seat{Member: r.Old.Member, Replica: r.Replica, Incarnation: r.Old.Incarnation},
		Add:    worker.Seat{Member: r.New.Member, Replica: r.Replica, Incarnation: r.New.Incarnation},
	}
	for i := 0; ; i++ {
		p := s.plans[i%len(s.plans)]
		done, err := worker.Replace(ctx, p.addr, creds.ClientTLS(loopback), want)
		var refused *fsop.Failure
		switch {
		case err == nil && done.Done:
			return nil
		case err == nil:
			s.log.Info("replacing "+r.Replica, zap.String("waits", done.Phase))
			i-- // the same again
		case errors.As(err, &refused) && refused.Code == fsop.Denied:
			return err
		case !sleep(ctx, replaceRetry):
			return fmt.Errorf("not finished, and goes on at the next request or start: %w", ctx.Err())
		}
	}
}

// destroyRetired removes the folders of replaced replicas.
func (s *system) destroyRetired() error {
	if len(s.settings.Retired) == 0 {
		return nil
	}
	for _, folder := range s.settings.Retired {
		if err := os.RemoveAll(filepath.Join(s.cfg.Dir, folder)); err != nil {
			return fmt.Errorf("destroy a replaced replica's copy: %w", err)
		}
	}
	s.settings.Retired = nil
	return s.settings.save(s.cfg.Dir)
}

// resume goes on with a replacement that an earlier dev began.
func (s *system) resume(ctx context.Context) {
	s.replacing.Lock()
	defer s.replacing.Unlock()
	if s.settings.Replacing == nil {
		return
	}
	if err := s.proceed(ctx); err != nil && ctx.Err() == nil {
		s.log.Error("go on with a replacement", zap.Error(err))
	}
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
)

// Replacement is an operator's request for a new copy of one replica.
type Replacement struct {
	Kubeconfig, Namespace string
	Volume                string
	Replica               string // its number, or its name
	Incarnation           uint64
	Node                  string // of the new copy; empty: the manager chooses
	Force                 bool
}

// Replace asks the cluster's manager for a replacement, and waits until it is done or refused. The
// request of a refused one is withdrawn. When ctx ends first, it goes on.
func Replace(ctx context.Context, q Replacement, w io.Writer) error {
	k, err := (&reach{q.Kubeconfig, q.Namespace}).connect()
	if err != nil {
		return err
	}
	index, err := replicaIndex(q.Volume, q.Replica)
	if err != nil {
		return err
	}
	if q.Incarnation < 1 || q.Incarnation > 1<<62 {
		return boot.Usagef("--incarnation: %d is no life of a replica", q.Incarnation)
	}
	return replace(ctx, k, q.Volume, api.ReplacementRequest{Replica: index, Incarnation: int64(q.Incarnation), Node: q.Node, Force: q.Force}, w)
}

// replicaIndex reads a replica's number, or its name.
func replicaIndex(volume, replica string) (int32, error) {
	text := strings.TrimPrefix(strings.TrimPrefix(replica, volume+"-"), "r")
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 || n > 4 {
		return 0, boot.Usagef("--replica: %q is not a replica's number (1 to 4) or name (%s)", replica, api.ReplicaName(volume, 1))
	}
	return int32(n), nil
}

// lookEvery is how often a request is looked at.
const lookEvery = time.Second

func replace(ctx context.Context, k *kube.Client, name string, q api.ReplacementRequest, w io.Writer) error {
	asked, err := request(ctx, k, name, q)
	if err != nil {
		return err
	}
	said := ""
	for {
		v, err := k.Volume(ctx, name)
		if err != nil && !kube.Uncertain(err) {
			return err
		}
		if err == nil && v.Status.ObservedGeneration >= asked {
			done, text, refused := progress(v, q)
			switch {
			case refused:
				return errors.Join(errors.New("refused: "+text), withdraw(ctx, k, name, q))
			case text != said:
				fmt.Fprintln(w, text)
				said = text
			}
			if done {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not finished, and goes on; ctl volumes %s says how far it is: %w", name, ctx.Err())
		case <-time.After(lookEvery):
		}
	}
}

// request writes the request, and returns the generation that has it.
func request(ctx context.Context, k *kube.Client, name string, q api.ReplacementRequest) (int64, error) {
	for {
		v, err := k.Volume(ctx, name)
		if err != nil {
			return 0, err
		}
		r := v.Replica(q.Replica)
		switch {
		case v.Spec.Reclaim != nil:
			return 0, fmt.Errorf("volume %s is being destroyed", name)
		case r == nil:
			return 0, fmt.Errorf("volume %s has no replica %d", name, q.Replica)
		case r.Incarnation != q.Incarnation && !(r.Incarnation == q.Incarnation+1 && v.Spec.Replacement != nil && *v.Spec.Replacement == q):
			return 0, fmt.Errorf("replica %d of volume %s is in its life %d, not %d", q.Replica, name, r.Incarnation, q.Incarnation)
		case busy(v) != nil && busy(v).Index != q.Replica:
			return 0, fmt.Errorf("replica %d of volume %s is being replaced; one at a time", busy(v).Index, name)
		case v.Spec.Replacement != nil && *v.Spec.Replacement == q:
			return v.Generation, nil
		}
		v.Spec.Replacement = &q
		now, err := k.UpdateVolume(ctx, v)
		switch {
		case kube.Conflict(err):
			continue
		case err != nil:
			return 0, err
		}
		return now.Generation, nil
	}
}

func busy(v *api.ReplicatedVolume) *api.RetiredSpec {
	for _, r := range v.Spec.Replicas {
		if old := v.Joining(r.Index); old != nil {
			return old
		}
	}
	return nil
}

// progress says how far a replacement is, in words. It is refused when the manager has looked at it, and the life that it names is
// still in its place.
func progress(v *api.ReplicatedVolume, q api.ReplacementRequest) (done bool, text string, refused bool) {
	c := v.Condition(api.ConditionReplacement)
	r := v.Replica(q.Replica)
	switch {
	case c == nil:
		return false, "waiting for the manager", false
	case r.Incarnation == q.Incarnation:
		return false, c.Message, c.Reason != api.ReasonReplacementBegins && c.Reason != api.ReasonDone
	case v.Joining(q.Replica) != nil || c.Status != "True":
		return false, c.Message, false
	}
	return true, fmt.Sprintf("replaced: %s; the former copy is barred, and destroyed when its node answers", c.Message), false
}

// withdraw takes a request back that was refused, so that it is not carried out when nobody expects it any more.
func withdraw(ctx context.Context, k *kube.Client, name string, q api.ReplacementRequest) error {
	for {
		v, err := k.Volume(ctx, name)
		if err != nil {
			return err
		}
		if v.Spec.Replacement == nil || *v.Spec.Replacement != q || v.Replica(q.Replica).Incarnation != q.Incarnation {
			return nil
		}
		v.Spec.Replacement = nil
		if _, err = k.UpdateVolume(ctx, v); !kube.Conflict(err) {
			return err
		}
	}
}

// drain has every replica of a node moved elsewhere, one volume after the other, so that no more of them than
// have to be are without their spare at a time.
func drain(ctx context.Context, k *kube.Client, node string, w io.Writer) error {
	all, err := k.Volumes(ctx)
	if err != nil {
		return err
	}
	var failed []error
	moved := 0
	for i := range all {
		v := &all[i]
		for _, r := range v.Spec.Replicas {
			if r.Node != node || v.Spec.Reclaim != nil {
				continue
			}
			fmt.Fprintf(w, "volume %s, replica %d:\n", v.Name, r.Index)
			if err := replace(ctx, k, v.Name, api.ReplacementRequest{Replica: r.Index, Incarnation: r.Incarnation}, w); err != nil {
				failed = append(failed, fmt.Errorf("volume %s: %w", v.Name, err))
				continue
			}
			moved++
		}
	}
	fmt.Fprintf(w, "%d replicas were moved from %s\n", moved, node)
	return errors.Join(failed...)
}

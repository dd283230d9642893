package replicated

import (
	"context"
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// told answers every call with one error.
type told struct{ err error }

func (m told) Stage(context.Context, string, string, Access) error { return m.err }
func (m told) Unstage(context.Context, string, string) error       { return m.err }
func (m told) Publish(context.Context, string, string, string, Access, bool) error {
	return m.err
}
func (m told) Unpublish(context.Context, string, string) error { return m.err }
func (m told) Usage(context.Context, string, string) (Usage, error) {
	return Usage{BytesTotal: 10, BytesFree: 4, InodesTotal: 9, InodesFree: 8}, m.err
}

func nodeCapability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

// TestNodeRefuses is a table of requests that say too little, or too much.
func TestNodeRefuses(t *testing.T) {
	n := NewNode("node-1", told{})
	ctx := t.Context()
	good := nodeCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
	block := &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{}, AccessMode: good.AccessMode}
	calls := map[string]func() error{
		"stage nothing": func() error { _, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{}); return err },
		"stage nowhere": func() error {
			_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v", VolumeCapability: good})
			return err
		},
		"stage relative": func() error {
			_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v", VolumeCapability: good, StagingTargetPath: "s"})
			return err
		},
		"stage somehow": func() error {
			_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s"})
			return err
		},
		"stage a device": func() error {
			_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s", VolumeCapability: block})
			return err
		},
		"stage for one Pod": func() error {
			_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s", VolumeCapability: nodeCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER)})
			return err
		},
		"stage read-only": func() error {
			_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s", VolumeCapability: nodeCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)})
			return err
		},
		"unstage nowhere": func() error {
			_, err := n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "v"})
			return err
		},
		"publish from nowhere": func() error {
			_, err := n.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: "/t", VolumeCapability: good})
			return err
		},
		"publish nowhere": func() error {
			_, err := n.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: "v", StagingTargetPath: "/s", VolumeCapability: good})
			return err
		},
		"unpublish nothing": func() error {
			_, err := n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{TargetPath: "/t"})
			return err
		},
		"stats of nothing": func() error {
			_, err := n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumePath: "/t"})
			return err
		},
		"stats of nowhere": func() error {
			_, err := n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: "v"})
			return err
		},
	}
	for name, call := range calls {
		if err := call(); status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNodeAnswers passes on what the mounts say.
func TestNodeAnswers(t *testing.T) {
	ctx := t.Context()
	good := nodeCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	for _, c := range []struct {
		err  error
		code codes.Code
	}{
		{nil, codes.OK},
		{&Error{InUse, "owned by node-2"}, codes.FailedPrecondition},
		{&Error{Missing, "no such volume"}, codes.NotFound},
		{&Error{Different, "another mount"}, codes.AlreadyExists},
		{errors.New("no answer"), codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		n := NewNode("node-1", told{c.err})
		_, stage := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s", VolumeCapability: good})
		_, publish := n.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: "v", StagingTargetPath: "/s", TargetPath: "/t", VolumeCapability: good})
		_, unpublish := n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: "/t"})
		_, unstage := n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s"})
		stats, usage := n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: "/t"})
		for what, err := range map[string]error{"stage": stage, "publish": publish, "unpublish": unpublish, "unstage": unstage, "stats": usage} {
			if status.Code(err) != c.code {
				t.Errorf("%v: %s answers %v", c.err, what, err)
			}
		}
		if c.err == nil && (stats.Usage[0].Used != 6 || stats.Usage[1].Used != 1) {
			t.Errorf("usage %+v", stats.Usage)
		}
	}
	n := NewNode("node-1", told{})
	info, err := n.NodeGetInfo(ctx, nil)
	if err != nil || info.NodeId != "node-1" || info.AccessibleTopology != nil {
		t.Errorf("info %+v, %v", info, err)
	}
}

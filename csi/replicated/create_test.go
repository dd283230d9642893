package replicated

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// fakeVolumes answers with what it is told to.
type fakeVolumes struct {
	got    *Request
	access Access
	err    error
}

func (f *fakeVolumes) Provision(_ context.Context, r Request) (int64, error) {
	f.got = &r
	return r.Bytes, f.err
}
func (f *fakeVolumes) Destroy(context.Context, string) error          { return f.err }
func (f *fakeVolumes) Access(context.Context, string) (Access, error) { return f.access, f.err }

func mount(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

const rwx = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER

func goodCreate() *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: "pvc-1", VolumeCapabilities: []*csi.VolumeCapability{mount(rwx)}, CapacityRange: &csi.CapacityRange{RequiredBytes: 10 << 30},
		Parameters: map[string]string{
			ParameterReplicas: "3", ParameterBackingClass: "local", keyClaimName: "claim", keyClaimNamespace: "default", keyVolumeName: "pvc-1",
		},
	}
}

func TestCreateVolumeTakes(t *testing.T) {
	base := Request{Name: "pvc-1", ClaimNamespace: "default", ClaimName: "claim", Access: ManyNodes, Bytes: 10 << 30, BackingClass: "local", Replicas: 3}
	cases := map[string]struct {
		change func(*csi.CreateVolumeRequest)
		want   func(*Request)
	}{
		"as the documents have it": {func(*csi.CreateVolumeRequest) {}, func(*Request) {}},
		"one replica":              {func(q *csi.CreateVolumeRequest) { q.Parameters["replicas"] = "1" }, func(r *Request) { r.Replicas = 1 }},
		"four replicas":            {func(q *csi.CreateVolumeRequest) { q.Parameters["replicas"] = "4" }, func(r *Request) { r.Replicas = 4 }},
		"no replicas given":        {func(q *csi.CreateVolumeRequest) { delete(q.Parameters, "replicas") }, func(*Request) {}},
		"quota":                    {func(q *csi.CreateVolumeRequest) { q.Parameters["quota"] = "enforced" }, func(r *Request) { r.QuotaEnforced = true }},
		"no size":                  {func(q *csi.CreateVolumeRequest) { q.CapacityRange = nil }, func(r *Request) { r.Bytes = DefaultBytes }},
		"only a small limit": {
			func(q *csi.CreateVolumeRequest) { q.CapacityRange = &csi.CapacityRange{LimitBytes: 1 << 20} },
			func(r *Request) { r.Bytes = 1 << 20 },
		},
		"ReadWriteOnce": {
			func(q *csi.CreateVolumeRequest) {
				q.VolumeCapabilities = []*csi.VolumeCapability{mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER)}
			},
			func(r *Request) { r.Access = OneNode },
		},
		"ReadWriteOnce from an older provisioner": {
			func(q *csi.CreateVolumeRequest) {
				q.VolumeCapabilities = []*csi.VolumeCapability{mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)}
			},
			func(r *Request) { r.Access = OneNode },
		},
		"both modes": {
			func(q *csi.CreateVolumeRequest) {
				q.VolumeCapabilities = append(q.VolumeCapabilities, mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER))
			},
			func(*Request) {},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			q, want := goodCreate(), base
			c.change(q)
			c.want(&want)
			v := &fakeVolumes{}
			resp, err := NewController(v).CreateVolume(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if *v.got != want {
				t.Errorf("asked for %+v, want %+v", *v.got, want)
			}
			if resp.Volume.VolumeId != q.Name || resp.Volume.CapacityBytes != want.Bytes || len(resp.Volume.AccessibleTopology) != 0 {
				t.Errorf("answered %v", resp.Volume)
			}
		})
	}
}

// A5, A3: everything else is an InvalidArgument that names the offender.
func TestCreateVolumeRefuses(t *testing.T) {
	type request = csi.CreateVolumeRequest
	parameter := func(key, value string) func(*request) {
		return func(q *request) { q.Parameters[key] = value }
	}
	mode := func(m csi.VolumeCapability_AccessMode_Mode) func(*request) {
		return func(q *request) { q.VolumeCapabilities = []*csi.VolumeCapability{mount(m)} }
	}
	notReplicas := func(v string) string { return `parameter replicas: "` + v + `" is not "1", "2", "3" or "4"` }
	cases := map[string]struct {
		change  func(*request)
		message string
	}{
		"no name":              {func(q *request) { q.Name = "" }, "no name is given"},
		"no capabilities":      {func(q *request) { q.VolumeCapabilities = nil }, "no volume capabilities are given"},
		"no access type":       {func(q *request) { q.VolumeCapabilities[0].AccessType = nil }, "a volume capability without an access type"},
		"unknown key":          {parameter("colour", "blue"), `parameter "colour" is not known; there are replicas, backingStorageClass and quota`},
		"key of another case":  {parameter("Replicas", "3"), `parameter "Replicas" is not known; there are replicas, backingStorageClass and quota`},
		"fstype as a key":      {parameter("csi.storage.k8s.io/fstype", "ext4"), `parameter "csi.storage.k8s.io/fstype" is not known; there are replicas, backingStorageClass and quota`},
		"zero replicas":        {parameter("replicas", "0"), notReplicas("0")},
		"five replicas":        {parameter("replicas", "5"), notReplicas("5")},
		"replicas with zero":   {parameter("replicas", "03"), notReplicas("03")},
		"replicas with blank":  {parameter("replicas", " 3"), notReplicas(" 3")},
		"replicas with plus":   {parameter("replicas", "+3"), notReplicas("+3")},
		"empty replicas":       {parameter("replicas", ""), notReplicas("")},
		"replicas as a word":   {parameter("replicas", "three"), notReplicas("three")},
		"no backing class":     {func(q *request) { delete(q.Parameters, "backingStorageClass") }, "parameter backingStorageClass is missing: name the StorageClass of the local driver"},
		"quota of other value": {parameter("quota", "true"), `parameter quota: "true" is not "enforced"`},
		"no claim": {
			func(q *request) { delete(q.Parameters, keyClaimName) },
			"parameters csi.storage.k8s.io/pvc/name and csi.storage.k8s.io/pvc/namespace are missing: run external-provisioner with --extra-create-metadata",
		},
		"block": {func(q *request) {
			q.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		}, "volumeMode Block: the driver has filesystems only"},
		"fsType":        {func(q *request) { q.VolumeCapabilities[0].GetMount().FsType = "ext4" }, `fsType "ext4": the driver has its own filesystem`},
		"mount options": {func(q *request) { q.VolumeCapabilities[0].GetMount().MountFlags = []string{"noatime"} }, `mount option "noatime": there are none`},
		"RWOP": {
			mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER),
			"access mode ReadWriteOncePod is not supported; use ReadWriteOnce",
		},
		"ROX": {
			mode(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY),
			"access mode ReadOnlyMany is not supported; use ReadWriteMany with readOnly: true in the Pod",
		},
		"no mode": {mode(csi.VolumeCapability_AccessMode_UNKNOWN), "access mode UNKNOWN is not supported; use ReadWriteMany or ReadWriteOnce"},
		"one of two modes": {func(q *request) {
			q.VolumeCapabilities = append(q.VolumeCapabilities, mount(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY))
		}, "access mode ReadOnlyMany is not supported; use ReadWriteMany with readOnly: true in the Pod"},
		"topology": {
			func(q *request) { q.AccessibilityRequirements = &csi.TopologyRequirement{} },
			"accessibility requirements: the driver chooses the nodes itself; remove allowedTopologies from the StorageClass",
		},
		"snapshot": {func(q *request) {
			q.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "s"}}}
		}, "content source: a volume can't be made from a snapshot"},
		"clone": {func(q *request) {
			q.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "v"}}}
		}, "content source: a volume can't be made from another volume"},
		"mutable parameters": {func(q *request) { q.MutableParameters = map[string]string{"iops": "1"} }, `mutable parameter "iops": there is none`},
		"secrets":            {func(q *request) { q.Secrets = map[string]string{"key": "hidden"} }, `secret "key": the driver makes its own credentials`},
		"negative size":      {func(q *request) { q.CapacityRange = &csi.CapacityRange{RequiredBytes: -1} }, "capacity of at least -1 and at most 0 bytes"},
		"limit below need": {
			func(q *request) { q.CapacityRange = &csi.CapacityRange{RequiredBytes: 2, LimitBytes: 1} },
			"capacity of at least 2 bytes is more than the limit of 1",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			q := proto.Clone(goodCreate()).(*request)
			c.change(q)
			v := &fakeVolumes{}
			_, err := NewController(v).CreateVolume(t.Context(), q)
			if status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != c.message {
				t.Errorf("answered %v, want %q", err, c.message)
			}
			if v.got != nil {
				t.Errorf("a volume was asked for: %+v", *v.got)
			}
		})
	}
}

func TestCodes(t *testing.T) {
	cases := []struct {
		err  error
		want codes.Code
	}{
		{&Error{Refused, "m"}, codes.InvalidArgument},
		{&Error{NoCapacity, "m"}, codes.ResourceExhausted},
		{&Error{Different, "m"}, codes.AlreadyExists},
		{&Error{Pending, "m"}, codes.Aborted},
		{&Error{InUse, "m"}, codes.FailedPrecondition},
		{&Error{Missing, "m"}, codes.NotFound},
		{&Error{Unknown, "m"}, codes.Unavailable},
		{errors.New("m"), codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
	}
	for _, c := range cases {
		v := &fakeVolumes{err: c.err}
		_, created := NewController(v).CreateVolume(t.Context(), goodCreate())
		_, deleted := NewController(v).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "v"})
		if status.Code(created) != c.want || status.Code(deleted) != c.want {
			t.Errorf("%v: answered %v and %v, want %v", c.err, created, deleted, c.want)
		}
	}
	if len(codeOf) != int(Missing)+1 {
		t.Errorf("%d kinds of errors have codes, want %d", len(codeOf), Missing+1)
	}
}

func TestValidateVolumeCapabilities(t *testing.T) {
	const rwo = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	cases := map[string]struct {
		has     Access
		ask     csi.VolumeCapability_AccessMode_Mode
		params  map[string]string
		message string
	}{
		"RWX as RWX":   {ManyNodes, rwx, nil, ""},
		"RWX as RWO":   {ManyNodes, rwo, nil, ""},
		"RWO as RWO":   {OneNode, rwo, nil, ""},
		"RWO as RWX":   {OneNode, rwx, nil, errOneNode.Error()},
		"RWX as ROX":   {ManyNodes, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, nil, "access mode ReadOnlyMany is not supported; use ReadWriteMany with readOnly: true in the Pod"},
		"an odd param": {ManyNodes, rwx, map[string]string{"x": "y"}, `parameter "x" is not known; there are replicas, backingStorageClass and quota`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			resp, err := NewController(&fakeVolumes{access: c.has}).ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
				VolumeId: "v", VolumeCapabilities: []*csi.VolumeCapability{mount(c.ask)}, Parameters: c.params,
			})
			if err != nil {
				t.Fatal(err)
			}
			if resp.Message != c.message || (resp.Confirmed != nil) != (c.message == "") {
				t.Errorf("answered %v", resp)
			}
		})
	}
}

// FuzzParseReplicas takes exactly four texts (A6).
func FuzzParseReplicas(f *testing.F) {
	for _, text := range []string{"1", "4", "0", "5", "", "03", "١"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := ParseReplicas(text)
		if ok != (text == "1" || text == "2" || text == "3" || text == "4") || ok && strconv.Itoa(n) != text {
			t.Errorf("%q: %d %v", text, n, ok)
		}
	})
}

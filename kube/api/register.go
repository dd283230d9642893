package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of the resource.
const (
	Group    = "replicated.tak-os.org"
	Version  = "v1"
	Kind     = "ReplicatedVolume"
	Resource = "replicatedvolumes"
)

// GroupVersion is the resource's group and version.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ReplicatedVolume{}, &ReplicatedVolumeList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

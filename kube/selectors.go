package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tak-os.org/tak-replicated/kube/api"
)

const mergePatch = types.MergePatchType

func ofVolume(volume string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: api.LabelVolume + "=" + volume}
}

func hasVolumeLabel(o *metav1.ListOptions) { o.LabelSelector = api.LabelVolume }

func isWorker(o *metav1.ListOptions) {
	o.LabelSelector = api.LabelVolume + "," + api.LabelComponent + "=" + api.ComponentWorker
}

// metadataPatch replaces one field of an object's metadata, if the object is
// still the one that was looked at.
func metadataPatch(uid, resourceVersion, field string, value any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": uid, "resourceVersion": resourceVersion, field: value,
	}})
}

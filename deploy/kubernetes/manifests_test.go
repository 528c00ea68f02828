// Package kubernetes_test checks the manifests, without a cluster: they have no field that
// Kubernetes would not know, and their times, sizes and names fit each other.
package kubernetes_test

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued/internal/config"
)

// The fields that are used here, by their names in the API of Kubernetes. Any other is refused, so
// that a misspelt one, which a cluster may ignore, is found.
type (
	meta struct {
		Name   string
		Labels map[string]string
	}
	selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	execute struct{ Command []string }
	action  struct{ Exec *execute }
	probe   struct {
		Exec             *execute
		HTTPGet          *struct{ Path, Port string } `yaml:"httpGet"`
		PeriodSeconds    int                          `yaml:"periodSeconds"`
		TimeoutSeconds   int                          `yaml:"timeoutSeconds"`
		FailureThreshold int                          `yaml:"failureThreshold"`
	}
	seccomp     struct{ Type string }
	podSecurity struct {
		RunAsNonRoot   bool    `yaml:"runAsNonRoot"`
		RunAsUser      int     `yaml:"runAsUser"`
		RunAsGroup     int     `yaml:"runAsGroup"`
		FSGroup        int     `yaml:"fsGroup"`
		SeccompProfile seccomp `yaml:"seccompProfile"`
	}
	containerSecurity struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	}
	mount struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		SubPath   string `yaml:"subPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	}
	container struct {
		Name, Image string
		Args        []string
		Ports       []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		SecurityContext containerSecurity `yaml:"securityContext"`
		Resources       struct{ Requests, Limits map[string]string }
		Lifecycle       struct {
			PreStop *action `yaml:"preStop"`
		}
		StartupProbe   *probe  `yaml:"startupProbe"`
		LivenessProbe  *probe  `yaml:"livenessProbe"`
		ReadinessProbe *probe  `yaml:"readinessProbe"`
		VolumeMounts   []mount `yaml:"volumeMounts"`
	}
	volume struct {
		Name      string
		ConfigMap *struct{ Name string } `yaml:"configMap"`
		Secret    *struct {
			SecretName string `yaml:"secretName"`
			Items      []struct{ Key, Path string }
		}
		EmptyDir *struct {
			Medium    string
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
	}
	podSpec struct {
		TerminationGracePeriodSeconds int         `yaml:"terminationGracePeriodSeconds"`
		AutomountServiceAccountToken  *bool       `yaml:"automountServiceAccountToken"`
		EnableServiceLinks            *bool       `yaml:"enableServiceLinks"`
		SecurityContext               podSecurity `yaml:"securityContext"`
		Containers                    []container
		Volumes                       []volume
	}
	deploymentSpec struct {
		Replicas int
		Selector selector
		Strategy struct {
			Type          string
			RollingUpdate struct {
				MaxSurge       int `yaml:"maxSurge"`
				MaxUnavailable int `yaml:"maxUnavailable"`
			} `yaml:"rollingUpdate"`
		}
		Template struct {
			Metadata meta
			Spec     podSpec
		}
	}
	serviceSpec struct {
		Selector map[string]string
		Ports    []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
	}
	budgetSpec struct {
		MinAvailable int `yaml:"minAvailable"`
		Selector     selector
	}
	authenticationSpec struct {
		SecretTargetRef []struct{ Parameter, Name, Key string } `yaml:"secretTargetRef"`
	}
	scaledSpec struct {
		ScaleTargetRef  struct{ Name string } `yaml:"scaleTargetRef"`
		PollingInterval int                   `yaml:"pollingInterval"`
		CooldownPeriod  int                   `yaml:"cooldownPeriod"`
		MinReplicaCount int                   `yaml:"minReplicaCount"`
		MaxReplicaCount int                   `yaml:"maxReplicaCount"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior struct {
					ScaleDown struct {
						StabilizationWindowSeconds int `yaml:"stabilizationWindowSeconds"`
						Policies                   []struct {
							Type          string
							Value         int
							PeriodSeconds int `yaml:"periodSeconds"`
						}
					} `yaml:"scaleDown"`
				}
			} `yaml:"horizontalPodAutoscalerConfig"`
		}
		Triggers []struct {
			Type              string
			Metadata          map[string]string
			AuthenticationRef struct{ Name string } `yaml:"authenticationRef"`
		}
	}
	// object is any object; S is its spec.
	object[S any] struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       S
		Data       map[string]string
	}
)

// kinds are the API versions of the kinds that are used.
var kinds = map[string]string{
	"ConfigMap": "v1", "Service": "v1", "Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1",
	"TriggerAuthentication": "keda.sh/v1alpha1", "ScaledObject": "keda.sh/v1alpha1",
}

// documents returns the YAML documents of a file, each with its kind and name.
func documents(t *testing.T, file string) map[string]*yaml.Node {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	all := map[string]*yaml.Node{}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		var head struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   meta
		}
		require.NoError(t, n.Decode(&head))
		require.Equal(t, kinds[head.Kind], head.APIVersion, head.Kind)
		name := head.Kind + "/" + head.Metadata.Name
		require.NotContains(t, all, name)
		all[name] = &n
	}
}

// read reads one object strictly.
func read[S any](t *testing.T, all map[string]*yaml.Node, name string) object[S] {
	t.Helper()
	n := all[name]
	require.NotNil(t, n, name)
	delete(all, name)
	text, err := yaml.Marshal(n)
	require.NoError(t, err)
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var o object[S]
	require.NoError(t, d.Decode(&o), name)
	return o
}

// configuration reads resqued.yaml of the ConfigMap as a pod does.
func configuration(t *testing.T, o object[struct{}]) *config.Resolved {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "redis-password")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	text := bytes.ReplaceAll([]byte(o.Data["resqued.yaml"]), []byte("/etc/resqued/secret/redis-password"), []byte(secret))
	file := filepath.Join(dir, "resqued.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	r, err := config.Load(config.Options{File: file, Environ: []string{}, NeedQueues: true})
	require.NoError(t, err)
	require.Empty(t, r.Warnings)
	return r
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func TestManifests(t *testing.T) {
	t.Parallel()
	all := documents(t, "resqued.yaml")
	c := configuration(t, read[struct{}](t, all, "ConfigMap/resqued"))
	daemon := read[deploymentSpec](t, all, "Deployment/resqued").Spec
	web := read[deploymentSpec](t, all, "Deployment/resqued-web").Spec
	budget := read[budgetSpec](t, all, "PodDisruptionBudget/resqued").Spec
	service := read[serviceSpec](t, all, "Service/resqued-web").Spec
	require.Empty(t, all, "objects that no test looks at")

	for _, d := range []deploymentSpec{daemon, web} {
		require.Equal(t, d.Selector.MatchLabels, d.Template.Metadata.Labels)
		pod := d.Template.Spec
		require.True(t, pod.SecurityContext.RunAsNonRoot)
		require.NotZero(t, pod.SecurityContext.RunAsUser)
		require.Equal(t, "RuntimeDefault", pod.SecurityContext.SeccompProfile.Type)
		require.False(t, *pod.AutomountServiceAccountToken)
		require.False(t, *pod.EnableServiceLinks, "RESQUED_WEB_PORT and the like would look like settings")
		require.Len(t, pod.Containers, 1)
		one := pod.Containers[0]
		require.False(t, *one.SecurityContext.AllowPrivilegeEscalation)
		require.True(t, one.SecurityContext.ReadOnlyRootFilesystem)
		require.Equal(t, []string{"ALL"}, one.SecurityContext.Capabilities.Drop)
		require.NotEmpty(t, one.Resources.Limits["memory"])
		volumes := map[string]bool{}
		for _, v := range pod.Volumes {
			volumes[v.Name] = true
		}
		places := map[string]bool{}
		for _, m := range one.VolumeMounts {
			require.True(t, volumes[m.Name], m.Name)
			places[m.MountPath] = true
		}
		require.True(t, places["/tmp"], "the control socket needs a place in a read-only file system")
		require.True(t, places["/etc/resqued/resqued.yaml"])
	}

	pod := daemon.Template.Spec
	one := pod.Containers[0]
	// Kubernetes counts the hook into the grace period, and kills all that is left at its end.
	require.Greater(t, seconds(pod.TerminationGracePeriodSeconds), c.DrainTimeout+c.TermTimeout, "a drain needs its time")
	require.Positive(t, c.DrainTimeout, "without a bound the kernel ends a drain, and its jobs")
	require.Equal(t, []string{"resqued", "drain"}, one.Lifecycle.PreStop.Exec.Command)
	for _, p := range []*probe{one.StartupProbe, one.LivenessProbe} {
		require.Contains(t, p.Exec.Command, "--alive", "a restart does not repair Redis, and it ends a drain")
	}
	require.Equal(t, []string{"resqued", "health"}, one.ReadinessProbe.Exec.Command)
	patience, err := time.ParseDuration(one.LivenessProbe.Exec.Command[len(one.LivenessProbe.Exec.Command)-1])
	require.NoError(t, err)
	require.Greater(t, seconds(one.LivenessProbe.TimeoutSeconds), patience, "the probe answers before it is killed")
	require.Greater(t, seconds(one.LivenessProbe.PeriodSeconds*one.LivenessProbe.FailureThreshold), 30*time.Second)
	limit, err := config.ParseSize(one.Resources.Limits["memory"] + "B") // Mi is MiB
	require.NoError(t, err)
	require.EqualValues(t, config.RSSAuto, c.MaxRSS)
	require.EqualValues(t, 85<<20, c.AutoRSS(limit), "the comment says so")
	require.Equal(t, one.Resources.Requests["memory"], one.Resources.Limits["memory"], "what is not requested may be missing")
	require.NotContains(t, one.Resources.Limits, "cpu", "a limit of cpu throttles heartbeats")
	require.Equal(t, daemon.Selector.MatchLabels, budget.Selector.MatchLabels)
	require.Less(t, budget.MinAvailable, daemon.Replicas, "a node could not be drained")

	require.Equal(t, web.Selector.MatchLabels, service.Selector)
	dashboard := web.Template.Spec.Containers[0]
	port := dashboard.Ports[0].Name
	require.Equal(t, port, service.Ports[0].TargetPort)
	for p, path := range map[*probe]string{dashboard.StartupProbe: "/readyz", dashboard.LivenessProbe: "/healthz", dashboard.ReadinessProbe: "/healthz"} {
		require.Equal(t, path, p.HTTPGet.Path, "without Redis the dashboard shows what it read last")
		require.Equal(t, port, p.HTTPGet.Port)
		require.Greater(t, p.TimeoutSeconds, 2, "Redis may take so long to answer /readyz")
	}
}

func TestKEDA(t *testing.T) {
	t.Parallel()
	resqued := documents(t, "resqued.yaml")
	web := read[deploymentSpec](t, resqued, "Deployment/resqued-web").Spec.Template.Spec.Containers[0]
	service := read[serviceSpec](t, resqued, "Service/resqued-web")
	all := documents(t, "keda.yaml")
	authentication := read[authenticationSpec](t, all, "TriggerAuthentication/resqued-web")
	scaled := read[scaledSpec](t, all, "ScaledObject/resqued").Spec
	require.Empty(t, all)
	require.Equal(t, "resqued", scaled.ScaleTargetRef.Name)
	require.Positive(t, scaled.MinReplicaCount, "schedules, delayed jobs and recovery need a daemon")
	require.Less(t, scaled.MinReplicaCount, scaled.MaxReplicaCount)
	require.Len(t, scaled.Triggers, 2)
	jobs, latency := scaled.Triggers[0], scaled.Triggers[1]
	require.Equal(t, "metrics-api", jobs.Type) // TestScale of test/system asks by its metadata
	at, err := url.Parse(jobs.Metadata["url"])
	require.NoError(t, err)
	// The operator of KEDA runs in a namespace of its own.
	require.Equal(t, service.Metadata.Name+".default.svc", at.Host)
	require.Equal(t, 80, service.Spec.Ports[0].Port)
	require.Contains(t, strings.Split(web.Args[slices.Index(web.Args, "--host")+1], ","), at.Host, "other names are refused")
	require.Equal(t, authentication.Metadata.Name, jobs.AuthenticationRef.Name)
	require.Equal(t, "token", authentication.Spec.SecretTargetRef[0].Parameter)
	require.Equal(t, "prometheus", latency.Type)
	require.Contains(t, latency.Metadata["query"], "resqued_queue_age_seconds")
	behavior := scaled.Advanced.HorizontalPodAutoscalerConfig.Behavior.ScaleDown
	require.Positive(t, behavior.StabilizationWindowSeconds)
}

// Kustomize replaces an image that the manifests have.
func TestKustomization(t *testing.T) {
	t.Parallel()
	var k struct {
		Resources []string
		Images    []struct{ Name string }
	}
	text, err := os.ReadFile("kustomization.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &k))
	require.Equal(t, []string{"resqued.yaml"}, k.Resources)
	manifests, err := os.ReadFile(k.Resources[0])
	require.NoError(t, err)
	require.Contains(t, string(manifests), "image: "+k.Images[0].Name+":")
}

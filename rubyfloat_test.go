package resqued_test

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

// testdata/rubyfloats.txt has the bits of floating point numbers and what JSON.generate of
// Ruby 3.1 writes for them.
func TestRubyFloat(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/rubyfloats.txt")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	n := 0
	for lines := bufio.NewScanner(file); lines.Scan(); n++ {
		digits, want, _ := strings.Cut(lines.Text(), " ")
		bits, err := strconv.ParseUint(digits, 16, 64)
		require.NoError(t, err)
		x := math.Float64frombits(bits)
		text, err := json.Marshal([]any{resqued.RubyFloat(x)})
		require.NoError(t, err)
		require.Equal(t, "["+want+"]", string(text))
		var back [1]resqued.RubyFloat
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, bits, math.Float64bits(float64(back[0])))
	}
	require.Greater(t, n, 500)
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := json.Marshal(resqued.RubyFloat(x))
		require.Error(t, err)
	}
}

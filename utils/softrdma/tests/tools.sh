#!/bin/sh
# The distribution's RDMA tools, unmodified, on the software device. A tool that is not installed is skipped, and said
# to be. The last line is "N passed, N failed".
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
run=$here/../softrdma
passed=0
failed=0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# A port of its own for each test: machine-wide free as far as the process number goes.
port=$((20000 + $$ % 2000 * 5))

verdict() { # name, 0 if well
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok     $1"
    else
        failed=$((failed + 1))
        echo "FAILED $1"
        sed 's/^/    /' "$tmp"/out* | tail -n 30
    fi
}

missing() {
    command -v "$1" >/dev/null && return 1
    echo "skip   $1 is not installed"
}

# One program, whose output must have a line that matches.
alone() { # pattern, command...
    pattern=$1
    shift
    missing "$1" && return
    rm -f "$tmp"/out*
    timeout 20 "$run" "$@" >"$tmp/out" 2>&1 && grep -Eq "$pattern" "$tmp/out"
    verdict "$*" $?
}

# A server and a client, once. The client is started again while the server does not listen yet.
attempt() {
    port=$((port + 1))
    server=$(echo "$2" | sed "s/PORT/$port/g")
    client=$(echo "$3" | sed "s/PORT/$port/g")
    # shellcheck disable=SC2086
    timeout 10 "$run" $server >"$tmp/out.server" 2>&1 &
    pid=$!
    for wait in 0.05 0.1 0.2 0.4 0.8; do
        sleep $wait
        # shellcheck disable=SC2086
        timeout 8 "$run" $client >"$tmp/out.client" 2>&1
        code=$?
        [ $code -eq 1 ] || [ $code -eq 255 ] || break
    done
    [ "$code" -ne 0 ] && kill $pid 2>/dev/null
    wait $pid && [ "$code" -eq 0 ] && grep -Eq "$1" "$tmp/out.client"
}

# Some of the tools race with themselves: perftest connects a second time before its server listens again, and falls
# over when it is refused. So each pair has three attempts.
pair() { # pattern in the client's output, server command, client command
    missing "${2%% *}" && return
    attempt "$@" || attempt "$@" || attempt "$@"
    verdict "$2" $?
}

alone 'softrdma0[[:space:]]+0253' ibv_devices
alone 'SOFTRDMA_NOT_A_CARD' ibv_devinfo -v
alone 'link_layer:[[:space:]]+Ethernet' ibv_devinfo -d softrdma0
pair '1000 iters' "ibv_rc_pingpong -n 1000 -p PORT" "ibv_rc_pingpong -n 1000 -p PORT localhost"
pair '1000 iters' "ibv_rc_pingpong -e -n 1000 -p PORT" "ibv_rc_pingpong -e -n 1000 -p PORT localhost"
pair '1000 iters' "ibv_rc_pingpong -g 0 -n 1000 -p PORT" "ibv_rc_pingpong -g 0 -n 1000 -p PORT localhost"
pair '1000 iters' "ibv_rc_pingpong -N -c -n 1000 -p PORT" "ibv_rc_pingpong -N -c -n 1000 -p PORT localhost"
pair '100 iters' "ibv_srq_pingpong -n 100 -p PORT" "ibv_srq_pingpong -n 100 -p PORT localhost"
pair 'rdma-ping-9' "rping -s -a 127.0.0.1 -p PORT -C 10" "rping -c -a 127.0.0.1 -p PORT -C 10 -v"
pair 'rdma-ping-9' "rping -s -a ::1 -p PORT -C 10" "rping -c -a ::1 -p PORT -C 10 -v"
pair 'return status 0' "ucmatose -p PORT -c 4" "ucmatose -s 127.0.0.1 -p PORT -c 4"
pair 'rdma_client: end 0' "rdma_server -p PORT" "rdma_client -s 127.0.0.1 -p PORT"
for test in ib_write_lat ib_read_lat ib_send_lat; do
    # They spin: on a busy machine a turn is a time slice.
    pair '^ 2 +200' "$test -R -n 200 -p PORT" "$test -R -n 200 -p PORT 127.0.0.1"
done
for test in ib_write_bw ib_read_bw ib_send_bw; do
    pair '^ 65536 +1000' "$test -R -n 1000 -p PORT" "$test -R -n 1000 -p PORT 127.0.0.1"
done
pair '^ 65536 +1000' "ib_write_bw -n 1000 -p PORT" "ib_write_bw -n 1000 -p PORT 127.0.0.1"
pair '^ 65536 +4000' "ib_send_bw -n 1000 -e --use-srq -q 4 -p PORT" \
    "ib_send_bw -n 1000 -e --use-srq -q 4 -p PORT 127.0.0.1"
pair '^ 8 +1000' "ib_atomic_lat -n 1000 -p PORT" "ib_atomic_lat -n 1000 -p PORT 127.0.0.1"
pair '^ 65536 +8000' "ib_write_bw -b -q 8 -n 1000 -p PORT" "ib_write_bw -b -q 8 -n 1000 -p PORT 127.0.0.1"

# The launcher.
alone '^42$' sh -c 'echo 42'
"$run" sh -c 'exit 7'
[ $? -eq 7 ]
verdict "the launcher passes the exit code through" $?
"$run" sh -c 'kill -TERM $$' 2>/dev/null
[ $? -eq 143 ]
verdict "the launcher passes signals through" $?
"$run" --help | grep -q '^usage: softrdma COMMAND'
verdict "the launcher has help" $?

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]

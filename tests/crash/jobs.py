"""Runs of a crash test as several processes, each with groups of servers of its own."""
import subprocess
import sys
import threading


def start_jobs(program, options):
    """Runs `program` options.jobs times, each with --job, and prints what they print and the sum of their results.
    Returns the number of failures."""
    jobs = [subprocess.Popen([sys.executable, program, *sys.argv[1:], "--seed", str(options.seed), "--job", str(job)],
                             stdout=subprocess.PIPE, text=True) for job in range(options.jobs)]
    totals, lock = [0, 0], threading.Lock()

    def read(job):
        for line in job.stdout:
            words = line.split()
            with lock:
                if len(words) == 4 and words[1] == "passed," and words[3] == "failed":
                    totals[0] += int(words[0])
                    totals[1] += int(words[2])
                else:
                    print(line, end="", flush=True)
        totals[1] += job.wait() not in (0, 1)
    threads = [threading.Thread(target=read, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{totals[0]} passed, {totals[1]} failed")
    return totals[1]

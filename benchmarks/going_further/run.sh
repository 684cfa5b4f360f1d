#!/usr/bin/env bash
# The sweeps behind the claims of going_further, eight seeds each: about two hours on two cores. Each goes on where it
# was when it is called again. `lab16 sweep --report --out FILE` shows what a file holds.
set -euo pipefail
cd "$(dirname "$0")"
sweep="lab16 sweep --solution ../../solutions/lab16_llm_rl.py --seed 0-7"
all=reinforce,rloo,grpo,dr_grpo

$sweep --out rare.sqlite --pretraining onward --worked-rate 0.1,0.01 --estimator $all --evaluate-every 10
$sweep --out habit.sqlite --estimator rloo --length-cost 0.02,0.05,0.07,0.1
$sweep --out habit.sqlite --estimator rloo --length-cost 0.02,0.07 --entropy-bonus 0,0.05 --temperature 1,1.5
$sweep --out habit.sqlite --estimator rloo --length-cost 0.07 --entropy-bonus 0.2 --temperature 1,1.5
$sweep --out hacking.sqlite --estimator rloo --verifier answer,form,anywhere --length-cost 0,0.02
$sweep --out kl.sqlite --estimator rloo --kl none,k1-reward:0.1,k1-reward:0.3,k1-reward:1,k3-loss:0.1,k3-loss:0.3,k3-loss:1,k1-loss:0.3,k1-loss:1
$sweep --out length.sqlite --pretraining repeating --worked-rate 0.5 --estimator grpo,dr_grpo --steps 400
$sweep --out rare.sqlite --pretraining scratch --worked-rate 0.01 --estimator $all --steps 400 --evaluate-every 10
$sweep --out rare.sqlite --pretraining onward --worked-rate 0.001 --estimator $all --steps 2000

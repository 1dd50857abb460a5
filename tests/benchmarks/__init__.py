"""What rein_nb costs, as ratios in one run. See the README beside this file."""

/** The documents of a search for settings (`engine.advise.service`), as the page receives them. */

/** What a setting keeps of plain decoding, with a 95 % interval. */
export interface Kept {
  share: number;
  low: number;
  high: number;
  pairs: number;
  gained: number;
  lost: number;
  /** Of McNemar's exact test; null if what is kept is no accuracy. */
  p: number | null;
}

/** A setting that was run. */
export interface Measured {
  name: string;
  prompts: number;
  /** Median over the prompts of the time of plain decoding over its own, with a 95 % interval. */
  speed_up: number;
  speed_up_low: number;
  speed_up_high: number;
  ms: number;
  recomputed: number;
  gflops: number;
  kept: Kept | null;
  from: "published" | "searched" | "random" | "fitted";
  chosen?: boolean;
  predicted?: { time: number | null; kept: number | null } | null;
}

/** What is known of a cache method. */
export interface CacheAdvice {
  cache: string;
  title: string;
  grid: number;
  grid_runs: number;
  runs: number;
  random_runs: number | null;
  correlations: { kept: number | null; time: number | null; settings: number };
  searched: Measured[];
  held_back: Measured[];
}

/** The advice so far. */
export interface Advice {
  request: {
    keep: number;
    of: string;
    search_prompts: number;
    held_back_prompts: number;
    candidates: number;
  };
  finished: boolean;
  chosen: (Measured & { cache: string; preset: object; query: string; card: object }) | null;
  /** Method and name of the settings that no other beats. */
  front: [string, string][];
  caches: CacheAdvice[];
  not_tested: string[];
}

/** A message: the progress of a search, and the advice so far if it was summed up. */
export interface SearchProgress {
  search: string;
  state: string;
  message: string;
  stage: string;
  done: number;
  total: number;
  seconds_left: number | null;
  runs: number;
  most_runs?: number;
  advice?: Advice;
}

/** A measured setting, and whether it was tested on new prompts and is on the Pareto front. */
export interface Point extends Measured {
  tested: boolean;
  front: boolean;
}

/** The measured settings: those of the final tests first, from the fastest to the slowest. */
export function points(advice: Advice): Point[] {
  const front = new Set(advice.front.map(([, name]) => name));
  const tested: Point[] = [];
  const others: Point[] = [];
  for (const cache of advice.caches) {
    const known = new Set(cache.held_back.map(({ name }) => name));
    for (const one of cache.held_back)
      tested.push({ ...one, tested: true, front: front.has(one.name) });
    for (const one of cache.searched)
      if (!known.has(one.name)) others.push({ ...one, tested: false, front: false });
  }
  const faster = (a: Point, b: Point): number => b.speed_up - a.speed_up;
  return [...tested.sort(faster), ...others.sort(faster)];
}

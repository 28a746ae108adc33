export type Scenario = {
  readonly id: string
  readonly title: string
  run(seed: number): Promise<Result>
}

/** `faults` is empty when all promises were kept; the figures say what they had to be kept against. */
export type Result = { readonly faults: readonly string[]; readonly figures: Readonly<Record<string, number>> }

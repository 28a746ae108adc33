import type { Side } from './cases.ts'

/** A single figure, where rounds of requests say nothing; of each side that has it. */
export type Figure = Readonly<Partial<Record<Side, number>>> & {
  readonly id: string
  readonly title: string
  readonly unit: string
}

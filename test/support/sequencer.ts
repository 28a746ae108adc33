import { statSync } from 'node:fs'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/**
 * The files of processes first: they wait for processes to start and for faults to be noticed, and last longest. Of the rest
 * the largest first, so that no long one is left for the end. The same order on every machine.
 */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const weighed = files.map((file) => ({ file, weight: weightOf(file) }))
    return weighed.sort((a, b) => groupOf(a.file) - groupOf(b.file) || b.weight - a.weight).map(({ file }) => file)
  }
}

const groupOf = ({ project }: TestSpecification): number => project.config.sequence.groupOrder

const weightOf = ({ project, moduleId }: TestSpecification): number =>
  (project.name === 'process' ? 1_000_000 : 0) + statSync(moduleId).size

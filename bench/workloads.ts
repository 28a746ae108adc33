import { accountCases } from './accounts.ts'
import type { Case } from './cases.ts'
import { fileCases } from './files.ts'
import { readCases } from './reads.ts'
import { reportCases } from './reports.ts'
import { writeCases } from './writes.ts'

/** THE list of what is measured in rounds. */
export function workloads(products: number): readonly Case[] {
  return [...readCases(products), ...writeCases(products), ...reportCases, ...accountCases, ...fileCases]
}

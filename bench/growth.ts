import type { Case } from './cases.ts'
import { windows } from './reads.ts'
import { reportOf } from './reports.ts'
import type { Twin } from './shape.ts'
import { createIn } from './writes.ts'

/** W14: how a list, a create and a report grow with the table. As the administrator, whose reports read every row. */
export function growthCases(sizes: Readonly<Partial<Record<Twin, number>>>): readonly Case[] {
  return Object.entries(sizes).flatMap(([name, rows]) => {
    const table = name as Twin
    const on = (what: string) => ({
      id: 'W14',
      title: `${what}, ${rows.toLocaleString('en')} rows`,
      roles: ['admin'] as const,
    })
    return [
      { ...windows(table), ...on('W2 list') },
      { ...reportOf('category', table), ...on('W6 report by category') },
      { ...createIn(table), ...on('W4 create') },
    ]
  })
}

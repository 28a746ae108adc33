import type { Case } from './cases.ts'
import type { Twin } from './shape.ts'

const count = { function: 'count', field: '*' }
const sum = (field: string) => ({ function: 'sum', field })

const questions = {
  category: {
    groupBy: ['category_Id'],
    fields: ['category_Id', 'category.name'],
    aggregate: { count, stocked: sum('stock'), mean: { function: 'avg', field: 'price' } },
    sort: { category_Id: 'asc' },
  },
  month: {
    groupBy: ['date:year:releasedAt', 'date:month:releasedAt'],
    aggregate: { count, stocked: sum('stock'), turnover: sum('price') },
  },
}

/** Reports over all rows that the caller may see, by category and by month. */
export const reportCases: readonly Case[] = [
  { id: 'W6', title: 'report by category', ...reportOf('category', 'product') },
  { id: 'W7', title: 'report by month', ...reportOf('month', 'product') },
]

export function reportOf(by: keyof typeof questions, table: Twin): Omit<Case, 'id' | 'title'> {
  return {
    roles: ['admin', 'limited'],
    connections: 8,
    status: 200,
    request: ({ kind }) =>
      kind === 'ceiling'
        ? { method: 'POST', path: `/${table}/by-${by}`, body: '{}' }
        : { method: 'POST', path: `/reports/${table}`, body: JSON.stringify(questions[by]) },
    accepts: (body) => body.length > 1000 && body.startsWith('{"data":[{'),
    comparable: ({ data, totalCount }: { data: object[]; totalCount: number }) => ({
      data: data.map(withoutTwins),
      totalCount,
    }),
  }
}

/** Daybook names each part of a date twice. */
const withoutTwins = (row: object): object =>
  Object.fromEntries(Object.entries(row).filter(([name]) => !name.startsWith('date:')))

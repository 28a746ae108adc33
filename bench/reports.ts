import type { Case } from './cases.ts'

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
export const reportCases: readonly Case[] = (['category', 'month'] as const).map((by, i) => ({
  id: `W${6 + i}`,
  title: `report by ${by}`,
  roles: ['admin', 'limited'],
  connections: 8,
  status: 200,
  request: ({ kind }) =>
    kind === 'ceiling'
      ? { method: 'POST', path: `/product/by-${by}`, body: '{}' }
      : { method: 'POST', path: '/reports/product', body: JSON.stringify(questions[by]) },
  accepts: (body) => body.length > 1000 && body.startsWith('{"data":[{'),
  comparable: ({ data, totalCount }: { data: object[]; totalCount: number }) => ({
    data: data.map(withoutTwins),
    totalCount,
  }),
}))

/** Daybook names each part of a date twice. */
const withoutTwins = (row: object): object =>
  Object.fromEntries(Object.entries(row).filter(([name]) => !name.startsWith('date:')))

/** THE names of the sections of the operations area, by the last part of their address. */
export const sectionTitles = {
  health: 'Health',
  jobs: 'Jobs',
  schedules: 'Schedules',
  mails: 'Mails',
  templates: 'Templates',
  webhooks: 'Webhooks',
  workflows: 'Workflows',
  files: 'Files',
  settings: 'Settings',
  migrations: 'Migrations',
  consumers: 'Consumers',
} as const

export type SectionName = keyof typeof sectionTitles

export const isSection = (name: string): name is SectionName => Object.hasOwn(sectionTitles, name)

import {
  Activity,
  ChartColumn,
  Database,
  History,
  type LucideIcon,
  ShieldCheck,
  Table2,
  UsersRound,
  Workflow,
} from 'lucide-react'
import { sectionTitles } from '../pages/operations/sections.ts'
import type { Me } from './session.ts'

export type Page = {
  readonly title: string
  readonly to: string
  readonly icon: LucideIcon
  /** Typed after `g`: `g d`. */
  readonly key: string
  readonly isFor: (me: Me) => boolean
  /** Its sections, by the last part of their address: for the palette. */
  readonly sections?: Readonly<Record<string, string>>
}

const maySeeLog = ({ isAdmin, permissions }: Me): boolean =>
  isAdmin || permissions.some(({ collection, action }) => collection === 'svc_AuditLog' && action === 'read')

const maySeePeople = ({ isAdmin, permissions }: Me): boolean =>
  isAdmin || permissions.some(({ collection, action }) => collection === 'svc_User' && action === 'read')

const maySeeWorkflows = ({ isAdmin, permissions }: Me): boolean =>
  isAdmin || permissions.some(({ collection, action }) => collection === 'svc_Workflow' && action === 'read')

/** THE list of pages, as navigation and palette show them. Addresses are in router.tsx. */
export const pages: readonly Page[] = [
  { title: 'Data', to: '/data', icon: Database, key: 'd', isFor: () => true },
  { title: 'Reports', to: '/reports', icon: ChartColumn, key: 'r', isFor: () => true },
  { title: 'Log', to: '/log', icon: History, key: 'l', isFor: maySeeLog },
  { title: 'Schema', to: '/schema', icon: Table2, key: 's', isFor: ({ isAdmin }) => isAdmin },
  {
    title: 'Permissions',
    to: '/permissions',
    icon: ShieldCheck,
    key: 'p',
    isFor: ({ isAdmin }) => isAdmin,
    sections: { rules: 'Named rules', explain: 'Explain' },
  },
  { title: 'People', to: '/people', icon: UsersRound, key: 'u', isFor: maySeePeople },
  { title: 'Workflows', to: '/workflows', icon: Workflow, key: 'w', isFor: maySeeWorkflows },
  {
    title: 'Operations',
    to: '/operations',
    icon: Activity,
    key: 'o',
    isFor: ({ isAdmin }) => isAdmin,
    sections: sectionTitles,
  },
]
